// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package sim is an in-memory API server for unit tests. It is an http.RoundTripper without sockets
// and goroutines, so it works inside testing/synctest bubbles, and with every client that takes a
// rest.Config. It responds like a real API server, except for the differences below.
//
//	server := sim.New(t, scheme, website, deployment)     // in a bubble: with the bubble's t
//	c, err := client.New(server.Config(), client.Options{})
//
// New serves the built-in kinds and the scheme's kinds, stores the objects, and ends with the test.
// Tests of a few kinds can also begin with an empty server:
//
//	server := sim.NewServer(sim.ConfigMaps, sim.Leases)   // serves two kinds; checks no namespaces
//	server.Put(sim.ConfigMaps, &corev1.ConfigMap{…})      // another client's write
//	server.Add(fault.Rule{                                // the second update loses its answer
//		Match: fault.Match{Verbs: []string{"update"}}, Times: 1, Lose: true,
//	})
//
// It supports:
//
//   - CustomResourceDefinitions, given to New or created later: names, conditions, several
//     versions, status and scale, stored versions, and a deletion that removes the objects first
//   - discovery, plain and aggregated; /version, /healthz, /livez and /readyz
//   - OpenAPI v3, for kubectl explain, kubectl apply and client-go's openapi3
//   - reviews of access and identity: everything is allowed, unless a fault rule changes the answer
//   - Listen, which serves kubectl and other processes on a loopback port
//   - get and list: pages with continue and remainingItemCount, resourceVersion and
//     resourceVersionMatch, label and field selectors
//   - watch from any version, with bookmarks, streamed initial lists, 410, timeouts and selectors
//   - JSON, YAML and pretty JSON; protobuf for built-in kinds; PartialObjectMetadata and Table
//   - create, update, delete and deletecollection with all their options: dry run, preconditions,
//     finalizers, grace periods of Pods, propagation; errors have the real reason and causes
//   - the subresources status and scale; binding and eviction of Pods, which respects
//     PodDisruptionBudgets
//   - patches: JSON, merge and strategic merge
//   - server-side apply with the managedFields of apimachinery: conflicts, force, shared fields
//   - fieldValidation: unknown and duplicate fields are warnings, errors, or ignored
//   - the defaults of built-in kinds, and what a server sets in them: addresses of Services,
//     tolerations and priority of Pods, the selector of a Job, protecting finalizers
//   - admission webhooks: rules, selectors, operations, failure policy, timeout, reinvocation, dry
//     run, warnings, JSON patches and equivalent versions. They are called over HTTPS or, with
//     UseWebhooks, in process.
//   - conversion webhooks, for reads, writes, watches and server-side apply
//   - the fault rules of package fault, which fail, delay, hold, change, lose and cut requests and
//     answers
//   - owner garbage collection: background, foreground and orphan
//   - deletion of namespaces, with their conditions, finalizers and the finalize subresource. If
//     namespaces are served, the system namespaces exist, and Server.Put creates missing ones
//
// It assigns uid, resourceVersion, creationTimestamp and generation. As in a real API server, a
// no-op write creates no new version.
//
// # Guarantees
//
//   - V1: Responses equal the real API server's, except for the differences that the package doc
//     lists. Details: see Differences.
//   - V2: An unsupported request fails with 501, and its error names method and path.
//   - V3: Nothing outlives the test: at its end, watches and delayed requests end. Except for
//     [Server.Listen], the server starts no goroutine. Details: New registers Close, which ends
//     them.
//   - V4: The server works inside a testing/synctest bubble, with and without fault rules, in
//     virtual time.
//   - V5: Webhooks are called without the server's lock, so they may use the server. A webhook
//     that does not answer costs a request its timeout. The object that webhooks approved is
//     stored.
//
// # Differences
//
//   - Garbage collection and namespace deletion happen in one step right after the request, before
//     its answer. The real server's controllers need seconds.
//   - The order of these deletions is fixed: dependents in the order of their creation; pods, and
//     then the other content of a namespace by group, version and name of the resource.
//   - The garbage collector emits no Events about owners in another namespace.
//   - Uids and generated names come from a counter, so that a failing test repeats.
//   - Metadata is validated completely. Built-in kinds have only these other rules: keys, types and
//     immutability of ConfigMaps and Secrets; durations of Leases; ports and type of Services; the
//     namespace of Events; replicas, selector, container names and images of workloads; the
//     immutable fields of Pods (without the diff that ends the real message), StatefulSets, Jobs
//     and role bindings.
//   - The subresources exec, attach, portforward, proxy, log, resize, token, approval and
//     ephemeralcontainers fail with 501.
//   - No controller computes the status of PodDisruptionBudgets: tests set disruptionsAllowed. An
//     eviction adds no entry to their managedFields. Evictions of policy/v1beta1 are not accepted.
//   - Built-in kinds have the fields of client-go's version, which may be newer than the
//     server's.
//   - Admission policies and the kinds of certificates.k8s.io, flowcontrol.apiserver.k8s.io and
//     resource.k8s.io have no defaults. Neither have CSIDrivers, resources of whole Pods, and
//     volumes of RBD, AzureDisk and ScaleIO.
//   - Admission policies have no effect. A request for which a webhook has matchConditions fails
//     with 501, except with package envtest/sim/crd, where an authorizer in an expression allows
//     everything.
//   - Validating webhooks are called one after another, and all within the client's request.
//   - Webhooks do not see evictions and bindings of Pods, reviews of access and identity, nor
//     writes of Put, Remove, garbage collection, and the deletion of namespaces and
//     CustomResourceDefinitions. They see the deletion of a Pod once, where the real server
//     may call them twice, and no update of an object that does not exist.
//   - A webhook with a service cannot be reached. Use a url or UseWebhooks.
//   - A webhook configuration is not checked for overlaps, such as a/* and */b, or for wrong
//     expressions.
//   - A PriorityClass, a LimitRange and a ResourceQuota have no effect on Pods.
//   - A Service may name an address or a node port that another one has.
//   - If a field manager applies in another version than before, its fields of the earlier versions
//     stay. Any other write removes the managedFields entries of other versions.
//   - An apply of a custom object with an empty list or map in its metadata always makes a version.
//     In the real server that depends on its cache.
//   - In the managedFields of a CustomResourceDefinition, each object has an entry "." of its own.
//     A write of one must contain kind and apiVersion.
//   - A custom kind without a schema accepts every field, and its lists are atomic in an apply.
//   - A request for a future resourceVersion fails at once. The real server waits for three
//     seconds.
//   - A watch without timeoutSeconds does not end. The real server ends it after 30 to 60 minutes.
//   - The sim keeps the last 5,000 changes of each kind. Watches and pages of an older version
//     receive 410.
//   - The shardSelector parameter has no effect, as without the feature gate ShardedListAndWatch.
//   - Tables of built-in kinds have the columns Name and Age only.
//   - Watches over WebSockets are not supported.
//   - Without package envtest/sim/crd, custom objects are stored as they are: no validation,
//     defaults or pruning. Only the usual mistakes in a CustomResourceDefinition are found.
//   - Without a conversion webhook, versions of a kind differ only in their apiVersion.
//   - A list sends its objects to a conversion webhook together, up to 100 in a request, and each
//     version of an object only once. The real server sends each alone, at each list.
//     Label and field selectors see the stored version.
//   - core/v1 and events.k8s.io/v1 Events are separate kinds with separate objects.
//   - A new server has the namespaces default, kube-node-lease, kube-public and kube-system, and
//     nothing else: no Service kubernetes, no ClusterRoles, no PriorityClasses.
//   - autoscaling/v1 is not supported; use autoscaling/v2.
//   - Discovery lists the custom kinds of a group by name. The real server has no fixed order.
//   - /metrics, /logs and the list of paths are not supported. OpenAPI v2 has no paths.
//   - OpenAPI v3 describes group versions only. The schemas of built-in kinds come from Go types:
//     they have no enums and unions, a field is required if its JSON tag has no omitempty, and
//     CustomResourceDefinition and APIService have no fields. Operations have no descriptions.
//     Unsupported subresources and CBOR are missing. Without package envtest/sim/crd, custom kinds
//     accept every field.
//   - The version is v1.37.2+sim.
//   - SelfSubjectRulesReview answers with one rule that allows everything. TokenReview accepts no
//     token.
//
// Everything is safe for concurrent use.
//
// Stability: settling.
package sim
