// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhooktest tests webhooks: whether conversions lose fields, and whether an admission
// policy decides as a webhook does.
//
//	func TestConversion(t *testing.T) {
//		webhooktest.RoundTrip(t, newWebhooks(), webhooktest.Options{})
//	}
//
// RoundTrip converts random objects of each version to another one and back. It names the fields
// that get lost, such as "spec.replicas: 3 became nothing". It needs no API server.
//
//	func TestPolicy(t *testing.T) {
//		hooks := newWebhooks()
//		hooks.Policy(policy, binding)
//		webhooktest.SameAsPolicy(t, cluster.Config(), hooks, webhooktest.PolicyOptions{
//			Examples: []client.Object{website},
//		})
//	}
//
// SameAsPolicy sends variants of the examples to a real API server, once with the webhooks and once
// with the policies. It shows a request that gets different answers, with the fewest changes to the
// example. Use it before you replace a webhook by a policy, or as long as you ship both.
//
// Stability: settling.
package webhooktest
