// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package rotation measures whether a webhook server's certificates rotate without a failed
// request, on the real API server. Three replicas, each a process, are behind a TCP balancer. The
// load updates and reads objects of a kind with a validating webhook and a conversion webhook.
//
//	cd e2e && GOWORK=off go test ./rotation
//	cd e2e && GOWORK=off go test ./rotation -run ByTime -v -rotations 1000 -timeout 3h
//
// The first command is one rotation with lifetimes of hours, which a slow machine does not disturb.
// In the second, a CA lives 8 seconds, and one replica is killed every 50 rotations.
//
// Each answer closes its connection, so every call of a webhook begins with a handshake.
//
// A kill is a pod that leaves its Service and is then removed: the balancer sends it no new
// connections, its open connections end, then it gets SIGKILL. With Options.Hard it gets SIGKILL
// first, so requests in flight may fail.
//
// Run takes any program, so that other libraries can be measured under the same load:
//
//	cd bench && GOWORK=off go run . -only rotation
package rotation
