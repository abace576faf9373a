// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics feeds Prometheus from the hooks. It is the one package that links the Prometheus library: who does not
// import it does not carry it.
//
//	registry := prometheus.NewRegistry()
//	m, err := metrics.New(registry, metrics.Options{})
//	mgr := manager.New(cfg, manager.Options{Name: "website-operator", ClientHooks: m.Client, CacheHooks: m.Cache,
//		LeaderElection: &leaderelection.Options{Lease: "website-operator", Hooks: m.LeaderElection}})
//	c := controller.New("website", r, controller.Options{Hooks: m.Controller, QueueHooks: m.Queue, SourceHooks: m.Source})
//	mgr.Handle("/metrics", mgr.Authorize(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))) // needs manager.Options.Server
//
// # Names
//
// What others measure, too, has the name by which dashboards and alerts know it, with the same labels and type:
//
//	workqueue_depth{name}                                  ready keys
//	workqueue_adds_total{name}                             keys that became ready
//	workqueue_queue_duration_seconds{name}                 from ready to taken
//	workqueue_work_duration_seconds{name}                  from taken to settled
//	workqueue_unfinished_work_seconds{name}                sum of the times for which keys have been held so far
//	workqueue_longest_running_processor_seconds{name}      the longest of them
//	workqueue_retries_total{name}                          keys given a due time: after an error, a RequeueAfter, or from outside
//	rest_client_requests_total{code,method,host}           every request of the manager's client and elector; code "<error>": no answer
//	rest_client_request_duration_seconds{verb,host}        until the answer began, watches excepted; verb is the HTTP method
//	leader_election_master_status{name}                    1 while the Lease of that name is held
//	leader_election_slowpath_total{name}                   renewals that took more than one request
//	controller_runtime_reconcile_total{controller,result}  result: success, requeue_after, error, interrupted
//	controller_runtime_reconcile_errors_total{controller}, controller_runtime_terminal_reconcile_errors_total{controller},
//	controller_runtime_reconcile_panics_total{controller}, controller_runtime_reconcile_timeouts_total{controller}
//	controller_runtime_reconcile_time_seconds{controller}
//	controller_runtime_max_concurrent_reconciles{controller}, controller_runtime_active_workers{controller}
//
// The first eleven are those of Kubernetes' own components (k8s.io/component-base). Those of the queue have the buckets of
// controller-runtime, which are component-base's and two more, up to 1000 s. Reconciles have the names of controller-runtime: they
// mean the same here, and who moves an operator keeps its dashboards and its alerts. Where both run in one process, give one of them
// a Prefix or a registry of its own.
//
// What only Setpoint measures begins with setpoint_:
//
//	setpoint_queue_keys{name,state}                               ready, waiting (for backoff or a due time), held, parked, paused
//	setpoint_queue_dropped_total{name,why}, setpoint_queue_misuses_total{name}, setpoint_queue_panics_total{name}
//	setpoint_reconcile_slow_total{controller}                     Reconciles that were reported as slow (C9)
//	setpoint_reconcile_own_writes_wait_seconds{controller}        read-your-writes: for how long keys were put off (C6)
//	setpoint_reconcile_stale_total{controller}                    Reconciles that may not have seen their key's own writes (C6)
//	setpoint_takeover_wait_seconds{controller}                    for how long a term waited for the writes of the one before (L9)
//	setpoint_takeover_stale_total{controller}                     terms that may not have seen all of them (L9)
//	setpoint_source_dropped_total{controller,source,reason}       what a filter dropped, or a source had no room for
//	setpoint_source_handler_failures_total{controller,source}     events that are tried again (S8)
//	setpoint_source_poll_failures_total{controller,source}
//	setpoint_informers{kind,phase}                                waiting or failing: its API is missing, or refuses (S4)
//	setpoint_informer_objects{kind}, setpoint_informer_broken_objects{kind}
//	setpoint_informer_lists_total{kind}, setpoint_informer_watches_total{kind}, setpoint_informer_quiet_watches_total{kind}
//	setpoint_api_requests_total{controller,verb,resource,code}    what each controller asks of the API server
//	setpoint_api_unclear_writes_total{controller,resource}        writes whose answer does not tell their version
//	setpoint_skipped_applies_total{controller,resource}           applies that would have changed nothing
//	setpoint_unfenced_writes_total{verb,resource}                 writes without a term of leadership (L2)
//	setpoint_leader_election_terms_total{name,event}              acquired, lost, released
//	setpoint_leader_election_renewals_total{name,result}, setpoint_leader_election_renewal_duration_seconds{name}
//	setpoint_leader_election_takeover_seconds{name}               from when a leader was last seen to renew or release, to our term
//	setpoint_leader_election_leader_changes_total{name}           others that were seen to become the leader
//	setpoint_leader_election_cold_campaigns_total{name}           campaigns of a replica that was not warm (L8)
//	setpoint_leader_election_trouble{name}                        1 while the Lease cannot be read or written
//
// Names of keys, objects and identities are no labels. Where labels depend on what a program does, such as the resources that it
// asks for, a metric has at most 1000 series, and counts what comes later with each label "other".
//
// # Lifetime
//
// The series of a controller, its queue, sources and requests are there while it is warmed: the Remove of a manager leaves nothing
// behind, and one that never runs has none. Those of a queue without a controller are there from its constructor to its shutdown,
// those of an informer until its last handle is released.
//
// # In somebody else's process
//
// Nothing is registered anywhere but with the Registerer that is given (M5), so two managers in one process with registries or
// prefixes of their own do not meet. Kubernetes' component-base registers workqueue_ names lazily, with its first queue, and panics
// when they are taken; nobody can see that coming. So in a program that links it, set Options.Prefix if the registry is its
// legacyregistry: examples/kubestyle does.
//
// # Cost
//
// All hooks are safe for concurrent use. Those that are called for each key or request allocate nothing. A scrape asks each queue
// and controller for its figures and walks over the names of the objects of each informer.
package metrics
