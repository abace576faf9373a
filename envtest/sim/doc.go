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
//   - get, list (one page; label and field selectors), create, and update (409 on an old
//     resourceVersion)
//   - status updates; JSON, merge and strategic merge patches
//   - server-side apply with the managedFields of apimachinery: conflicts, force, shared fields
//   - fieldValidation: unknown and duplicate fields are warnings, errors, or ignored
//   - the defaults of built-in kinds, and what a server sets in them: addresses of Services,
//     tolerations and priority of Pods, the selector of a Job, protecting finalizers
//   - delete with preconditions and finalizers
//   - watch with bookmarks, streamed initial lists, 410 and timeouts
//
// It assigns uid, resourceVersion, creationTimestamp and generation. As in a real API server, a
// no-op write creates no new version. There is no garbage collection.
//
// # Differences
//
//   - Built-in kinds have the fields of client-go's version, which may be newer than the server's.
//   - The kinds of admissionregistration.k8s.io, certificates.k8s.io, flowcontrol.apiserver.k8s.io
//     and resource.k8s.io have no defaults. Neither have CSIDrivers, resources of whole Pods, and
//     volumes of RBD, AzureDisk and ScaleIO.
//   - A PriorityClass, a LimitRange and a ResourceQuota have no effect on Pods.
//   - An address or a node port that a Service names may be taken already.
//   - An apply of a scale subresource is not supported.
//   - Objects of one version are not converted to another. An apply in another version than the
//     earlier ones of its manager keeps their fields.
//   - A custom kind without a schema accepts every field, and its lists are atomic in an apply.
//
// Everything is safe for concurrent use.
package sim
