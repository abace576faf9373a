// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package sim is an in-memory API server for unit tests. It is an http.RoundTripper without sockets
// and goroutines, so it works inside testing/synctest bubbles, and with every client that takes a
// rest.Config. Its responses are those of a real API server, except for the differences below.
//
//	server := sim.NewServer(sim.ConfigMaps, sim.Leases)   // inside the bubble
//	c, err := client.New(server.Config(), client.Options{})
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
//   - discovery of a group and version
//   - get and list: pages with continue and remainingItemCount, resourceVersion and
//     resourceVersionMatch, label, field and shard selectors
//   - watch from any version, with bookmarks, streamed initial lists, 410, timeouts and selectors
//   - JSON, YAML and pretty JSON; protobuf for built-in kinds; PartialObjectMetadata and Table
//   - create, and update (409 on an old resourceVersion)
//   - status updates, merge patches, and apply (a merge that creates; there are no field owners)
//   - delete with preconditions and finalizers
//
// It assigns uid, resourceVersion, creationTimestamp and generation. As in a real API server, a
// no-op write creates no new version. Strategic merge patches are treated as merge patches. There
// is no admission, validation, defaulting or garbage collection.
//
// # Differences
//
//   - A request for a future resourceVersion fails at once. The real server waits for three seconds.
//   - A watch without timeoutSeconds does not end. The real server ends it after 30 to 60 minutes.
//   - Of each kind, the sim keeps the last 5,000 changes. Watches and pages of an older version
//     receive 410.
//   - The shardSelector parameter always works, as with the feature gate ShardedListAndWatch. Its
//     syntax errors have other words.
//   - Tables of built-in kinds have the columns Name and Age only.
//   - Watches over WebSockets are not supported.
//
// Everything is safe for concurrent use.
package sim
