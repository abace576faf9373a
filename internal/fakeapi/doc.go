// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi is the smallest API server in memory that client-go's informers, typed clients and leader election get
// along with. It is an http.RoundTripper: no socket, no goroutine of its own, so that it works inside testing/synctest
// bubbles. It is for the unit tests of this module; what a real API server does is tested with package envtest.
//
//	api := fakeapi.New(fakeapi.ConfigMaps, fakeapi.Leases)   // inside the bubble
//	c, err := client.New(api.Config(), client.Options{})
//	api.Put(fakeapi.ConfigMaps, &corev1.ConfigMap{…})         // somebody else's write
//	api.Intercept(func(r *fakeapi.Request) (*http.Response, error) {
//		if r.Verb == "list" {
//			return r.Fail(http.StatusForbidden, "no right to list")
//		}
//		return nil, nil // go on
//	})
//
// It does: discovery of a group and version; get, list (all in one page; label and field selectors), create, update (409 on an
// old resourceVersion), status updates, merge patches, apply (a merge that creates; there are no field owners), delete with
// preconditions and finalizers; watch with bookmarks, streamed initial lists, 410 and timeouts. It assigns uid,
// resourceVersion, creationTimestamp and generation. A write that changes nothing makes no new version, as in the real one.
// Strategic merge patches are treated as merge patches. There is no admission, no validation, no defaulting, and nobody
// collects garbage.
//
// Everything is safe for concurrent use. Answers are JSON, also to clients that would rather have protobuf; they cope.
package fakeapi
