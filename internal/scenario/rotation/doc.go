// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package rotation measures whether a webhook server's certificates rotate without a failed
// request, on the real API server. Replicas are processes behind a TCP balancer. The load updates
// and reads objects of a kind with a validating webhook and a conversion webhook.
//
//	go test ./internal/scenario/rotation -run TestA1_ -v -rotations 1000 -timeout 3h
//
// Each answer closes its connection, so every call of a webhook begins with a handshake.
//
// A kill is a pod that leaves its Service and is then removed: the balancer sends it no new
// connections, its open connections end, then it gets SIGKILL. With Options.Hard it gets SIGKILL
// first. Requests in flight then fail: the API server does not repeat a call of a webhook.
//
// Run takes any server that prints "ready HOST:PORT" and answers with Handler, so that servers with
// other certificates can be measured under the same load.
package rotation
