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
//   - get and list (one page; label and field selectors)
//   - create, update, delete and deletecollection with all their options: dry run, preconditions,
//     finalizers, grace periods of Pods, propagation; errors have the real reason and causes
//   - the subresources status and scale
//   - JSON, merge and strategic merge patches
//   - server-side apply with the managedFields of apimachinery: conflicts, force, shared fields
//   - fieldValidation: unknown and duplicate fields are warnings, errors, or ignored
//   - the defaults of built-in kinds, and what a server sets in them: addresses of Services,
//     tolerations and priority of Pods, the selector of a Job, protecting finalizers
//   - watch with bookmarks, streamed initial lists, 410 and timeouts
//
// It assigns uid, resourceVersion, creationTimestamp and generation. As in a real API server, a
// no-op write creates no new version. There is no garbage collection.
//
// # Differences
//
//   - Uids and generated names come from a counter, so that a failing test repeats.
//   - Metadata is validated completely. Of the other rules of built-in kinds there are these: keys,
//     types and immutability of ConfigMaps and Secrets; durations of Leases; ports and type of
//     Services; the namespace of Events; replicas, selector, container names and images of
//     workloads; the immutable fields of Pods (without the diff that ends the real message),
//     StatefulSets, Jobs and role bindings.
//   - The subresources binding, eviction, exec, attach, portforward, proxy, log, resize, token,
//     approval and ephemeralcontainers, and apply of a scale, fail with 501, method and path.
//   - Built-in kinds have the fields of client-go's version, which may be newer than the server's.
//   - There are no defaults for the kinds of admissionregistration.k8s.io, certificates.k8s.io,
//     flowcontrol.apiserver.k8s.io and resource.k8s.io, for CSIDrivers, and for the rarer sources of
//     volumes: iSCSI has some, RBD, AzureDisk and ScaleIO none. Pod-level resources have none either.
//   - A PriorityClass, a LimitRange and a ResourceQuota have no effect on Pods.
//   - An address or a node port that a Service names may be taken already.
//   - Objects of one version are not converted to another. An apply in another version than the
//     earlier ones of its manager keeps their fields.
//   - A custom kind without a schema accepts every field, and its lists are atomic in an apply.
//
// Everything is safe for concurrent use.
package sim
