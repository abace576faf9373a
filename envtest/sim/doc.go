// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package sim is an in-memory API server for unit tests. It is an http.RoundTripper without sockets
// and goroutines, so it works inside testing/synctest bubbles, and with every client that takes a
// rest.Config. Its responses are those of a real API server, except for the differences below.
//
//	cfg := sim.New(t, scheme, website, deployment)        // in a bubble: with the bubble's t
//	c, err := client.New(cfg, client.Options{})
//
// New serves the built-in kinds and those of the scheme, stores the objects, and ends with the
// test. Of returns the server behind a configuration, for rules and assertions. Tests of a few kinds
// can also begin with an empty server:
//
//	server := sim.NewServer(sim.ConfigMaps, sim.Leases)   // serves two kinds; checks no namespaces
//	cfg := server.Config()
//	server.Put(sim.ConfigMaps, &corev1.ConfigMap{…})      // another client's write
//	server.Intercept(func(r *sim.Request) (*http.Response, error) {
//		if r.Verb == "list" {
//			return r.Fail(http.StatusForbidden, "no right to list")
//		}
//		return nil, nil // go on
//	})
//
// It supports:
//
//   - CustomResourceDefinitions, given to New or created later: names, conditions, several versions,
//     status and scale, stored versions, and a deletion that removes the objects first
//   - discovery, plain and aggregated; /version, /healthz, /livez and /readyz
//   - reviews of access and identity: everything is allowed, unless a rule changes the answer
//   - Listen, which serves kubectl and other processes on a loopback port
//   - get, list (one page; label and field selectors), create, and update (409 on an old
//     resourceVersion)
//   - status updates, merge patches, and apply (a merge that creates; there are no field owners)
//   - delete with preconditions and finalizers
//   - watch with bookmarks, streamed initial lists, 410 and timeouts
//
// It assigns uid, resourceVersion, creationTimestamp and generation. As in a real API server, a
// no-op write creates no new version. Strategic merge patches are treated as merge patches. There
// is no admission, validation, defaulting or garbage collection.
//
// # Differences
//
//   - Without package envtest/sim/crd, custom objects are stored as they are: no validation, defaults
//     or pruning. Only the usual mistakes in a CustomResourceDefinition are found.
//   - Versions of a kind differ only in their apiVersion. Conversion webhooks are not called.
//   - core/v1 and events.k8s.io/v1 Events are separate kinds, and so are their objects.
//   - A new server has the namespaces default, kube-node-lease, kube-public and kube-system, and
//     nothing else: no Service kubernetes, no ClusterRoles, no PriorityClasses.
//   - autoscaling/v1 is not supported; use autoscaling/v2.
//   - OpenAPI, /metrics, /logs and the list of paths are not supported.
//   - The version is v1.36.3+sim.
//   - SelfSubjectRulesReview answers with one rule that allows everything. No token is valid.
//
// Everything is safe for concurrent use.
package sim
