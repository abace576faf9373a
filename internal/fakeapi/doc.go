// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi is a minimal in-memory API server for client-go's informers, typed clients and
// leader election. It is an http.RoundTripper without sockets and goroutines, so it works inside
// testing/synctest bubbles. It is for the unit tests of this module. Tests of a real API server's
// behavior use package envtest.
//
//	api := fakeapi.New(fakeapi.ConfigMaps, fakeapi.Leases)   // inside the bubble
//	c, err := client.New(api.Config(), client.Options{})
//	api.Put(fakeapi.ConfigMaps, &corev1.ConfigMap{…})         // another client's write
//	api.Intercept(func(r *fakeapi.Request) (*http.Response, error) {
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
//   - status updates, merge patches, and apply (a merge that creates; there are no field owners)
//   - delete with preconditions and finalizers
//   - watch with bookmarks, streamed initial lists, 410 and timeouts
//
// It assigns uid, resourceVersion, creationTimestamp and generation. As in a real API server, a
// no-op write creates no new version. Strategic merge patches are treated as merge patches. There
// is no admission, validation, defaulting or garbage collection.
//
// Everything is safe for concurrent use. Answers are JSON, even if clients prefer protobuf; they
// accept both.
package fakeapi
