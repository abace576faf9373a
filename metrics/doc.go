// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics feeds Prometheus from the events of package hook. Only programs that import it
// link the Prometheus library.
//
//	m, err := metrics.New(prometheus.NewRegistry())
//	mgr := manager.New(cfg, manager.Options{Name: "website-operator", Metrics: m})
//	server.AddMetrics(mgr, server.Options{}) // TLS on port 8443, with authorization
//
// # Common metrics
//
// These metrics have the same names, labels, types, buckets and meaning as in controller-runtime:
//
//	workqueue_depth{name,controller,priority}                     ready keys
//	workqueue_adds_total{name,controller}                         keys that became ready
//	workqueue_queue_duration_seconds{name,controller}             from ready to taken
//	workqueue_work_duration_seconds{name,controller}              from taken to settled
//	workqueue_unfinished_work_seconds{name,controller}            time in progress, sum of all held
//	                                                              keys
//	workqueue_longest_running_processor_seconds{name,controller}  time in progress, longest of all
//	                                                              held keys
//	workqueue_retries_total{name,controller}                      keys that got a due time: after an
//	                                                              error, a RequeueAfter, or from
//	                                                              outside
//	rest_client_requests_total{code,method,host}       requests of the manager's client and its
//	                                                   electors; code "<error>": no answer
//	rest_client_request_duration_seconds{verb,host}    until the answer begins, without watches;
//	                                                   verb is the HTTP method
//	leader_election_master_status{name}                1 while this process holds the Lease
//	leader_election_slowpath_total{name}               renewals of more than one request
//
//	controller_runtime_reconcile_total{controller,result}
//	        result: success, requeue_after, error, interrupted, stale
//	controller_runtime_reconcile_errors_total{controller}
//	controller_runtime_terminal_reconcile_errors_total{controller}
//	controller_runtime_reconcile_panics_total{controller}
//	controller_runtime_reconcile_timeouts_total{controller}
//	controller_runtime_reconcile_time_seconds{controller}
//	controller_runtime_max_concurrent_reconciles{controller}
//	controller_runtime_active_workers{controller}
//
//	controller_runtime_webhook_latency_seconds{webhook}         webhook is the path
//	controller_runtime_webhook_requests_total{webhook,code}     code is the HTTP status; a rejection
//	                                                            has 200
//	controller_runtime_webhook_requests_in_flight{webhook}
//	controller_runtime_webhook_panics_total                     of admission
//	controller_runtime_conversion_webhook_panics_total
//
//	go_*, process_*                                   from the Prometheus library
//
// Dashboards and alerts for these metrics keep working, even if they are for k8s.io/component-base,
// which has fewer labels. The labels name and controller of a queue are both its name. The label
// priority is the class times 100: background keys have -100, as controller-runtime's initial lists
// do. If both libraries run in one process, wrap the registry with
// prometheus.WrapRegistererWithPrefix, or use a separate one.
//
// These metrics of controller-runtime do not exist here:
//
//   - controller_runtime_reconcile_total{result="requeue"}, because Result.Requeue does not exist.
//   - certwatcher_*.
//   - The rest_client_* metrics that it has only on request, except
//     rest_client_request_duration_seconds.
//
// # Metrics of Setpoint
//
//	setpoint_queue_keys{name,state}                           state: ready, waiting (backoff or due
//	                                                          time), held, parked, paused
//	setpoint_queue_ready_keys{name,class}                     ready keys by class: interactive,
//	                                                          normal, background, or a number
//	setpoint_queue_tenant_ready_keys{name,tenant}             ready keys by tenant: the 100 tenants
//	                                                          with the most, others as "other"
//	setpoint_queue_dropped_total{name,why}                    dropped keys and adds
//	setpoint_queue_misuses_total{name}                        calls that break its contract
//	setpoint_queue_panics_total{name}                         panics of the queue's callbacks
//	setpoint_failing_keys{controller,reason}                  keys whose last Reconcile failed;
//	                                                          reason: as Error, Forbidden or GaveUp
//	                                                          in package why. A series begins with
//	                                                          the first failure, and stays with 0;
//	                                                          on a standby all are 0
//	setpoint_reconcile_slow_total{controller}                 Reconciles reported as slow
//	setpoint_reconcile_fights_total{controller}               keys that were slowed down because
//	                                                          they fight with another writer for
//	                                                          a field
//	setpoint_reconcile_own_writes_wait_seconds{controller}    time that keys waited for their own
//	                                                          writes
//	setpoint_reconcile_stale_total{controller}                Reconciles that may have missed their
//	                                                          key's own writes
//	setpoint_takeover_wait_seconds{controller}                time that a term waited for the writes
//	                                                          of the previous one
//	setpoint_takeover_stale_total{controller}                 terms that may have missed some
//	setpoint_source_dropped_total{controller,source,reason}   events that a predicate dropped, or a
//	                                                          full source
//	setpoint_source_handler_failures_total{controller,source} events that are retried
//	setpoint_source_poll_failures_total{controller,source}    polls that are retried
//	setpoint_informers{kind,phase}                            informers; phase: not_started, waiting
//	                                                          (the API is missing), syncing, synced,
//	                                                          failing (refused or unreachable),
//	                                                          stopped
//	setpoint_informer_objects{kind,scope,storage}             objects in the cache
//	setpoint_informer_bytes{kind,scope,storage}               kept bytes of packed objects,
//	                                                          estimated from a sample of 50
//	setpoint_informer_decodes_total{kind,scope,storage}       how often a packed object was decoded
//	setpoint_informer_broken_objects{kind}                    objects that cannot be decoded or
//	                                                          transformed
//	setpoint_informer_lists_total{kind}                       complete initial lists
//	setpoint_informer_watches_total{kind}                     opened watches
//	setpoint_informer_quiet_watches_total{kind}               watches given up for their silence
//	setpoint_api_requests_total{controller,verb,resource,code}
//	                                                          requests of each controller
//	setpoint_api_unclear_writes_total{controller,resource}    writes with an unknown version
//	setpoint_skipped_applies_total{controller,resource}       no-op applies that were not sent
//	setpoint_unfenced_writes_total{verb,resource}             writes without a term of leadership
//	setpoint_leader_election_terms_total{name,event}          event: acquired, lost, released
//	setpoint_leader_election_renewals_total{name,result}      result: success, error
//	setpoint_leader_election_renewal_duration_seconds{name}   time of a renewal
//	setpoint_leader_election_takeover_seconds{name}           from the last renewal or release of
//	                                                          another leader to our term
//	setpoint_leader_election_leader_changes_total{name}       other leaders that were observed
//	setpoint_leader_election_unsynced_campaigns_total{name}       campaigns before being warm
//	setpoint_leader_election_trouble{name}                    1 while the Lease cannot be read or
//	                                                          written
//	setpoint_shard_slots{group,state}                         state: owned (slots of this process),
//	                                                          moving and unserved (of the group);
//	                                                          group is the name of its Lease
//	setpoint_shard_members{group}                             members of the group, as this process
//	                                                          sees it; 0 while it is none
//	setpoint_shard_unserved_seconds{group}                    since when the oldest unserved slot of
//	                                                          the group has no member that acts; 0
//	                                                          if all are served
//	setpoint_shard_slot_changes_total{group,event}            slots that this process has got or
//	                                                          given up; event: acquired, released,
//	                                                          lost
//	setpoint_events_sent_total{kind,type,reason}              events that the API server has stored;
//	                                                          several may share one request
//	setpoint_events_failed_total                              failed requests for events
//	setpoint_events_dropped_total{why}                        events that were not sent
//	setpoint_webhook_rejections_total{webhook,reason}         rejected admission requests; reason is
//	                                                          Invalid, Forbidden or another one of
//	                                                          the API
//	setpoint_webhook_certificate_expiration_timestamp_seconds{type}
//	                                                          when the newest certificate expires;
//	                                                          type: ca, serving
//
// No label contains a key, object or identity. Some labels depend on the program, for example on
// the resources that it requests. A metric with such labels has at most 1000 series. All further
// label values share one series, in which every label has the value "other". The series of a host
// go with its last client, see [hook.ClientClosed]; requests that end later are not counted.
//
// The label storage is decoded or packed, and empty for adopted informers. The label scope has the
// form, selectors and transform of a cache.Scope, such as "labels app=web"; it is empty for all
// objects of a kind in their usual form. Scopes that differ only in cluster, namespaces or names
// share a series. Beyond the limit of 1000, "other" keeps the label storage. Decoded scopes have no
// bytes: the memory of Go objects is not known. For the same reason, objects that listers keep
// decoded do not count.
//
// # Conditions
//
// [Conditions] counts the conditions of the objects of a cache handle, at the scrape:
//
//	setpoint_conditions{kind,type,status,reason}           objects that have the condition
//	setpoint_condition_oldest_seconds{kind,type,status}    time since the earliest transition of an
//	                                                       object to its current status
//
// For example, setpoint_condition_oldest_seconds{type="Ready",status="False"} > 600 is an alert for
// an object that is not ready for 10 minutes. Each scrape reads all objects of the handle.
//
// # Lifetime
//
// The series of a controller, its queue, its sources and its requests exist while Controller.Warm
// runs, and end with Manager.Remove. The series of a queue without a controller exist from its
// constructor to its shutdown. The series of an informer end when its last handle is released.
//
// # In a host process
//
// New registers only with the given Registerer. A registry takes a second call of New only with a
// prefix. Use a prefix also for component-base's legacyregistry: component-base registers its
// workqueue_ names when its first queue is created, and panics if they are taken. See
// examples/kubestyle.
//
// # Cost
//
// The Hook is safe for concurrent use. It allocates nothing for the events of each key and request,
// and costs less than a microsecond per Reconcile. A scrape reads the figures of each queue and
// controller. It counts the objects of each informer by iterating over their names, which takes 20
// to 40 ms for 250,000 objects. It does so at most once a minute for more than 10,000 objects, so
// this number may be a minute old.
//
// Stability: stable.
package metrics
