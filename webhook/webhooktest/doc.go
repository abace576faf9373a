// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhooktest tests the functions of package webhook without an API server.
//
//	func TestConversion(t *testing.T) {
//		webhooktest.RoundTrip(t, newWebhooks(), webhooktest.Options{})
//	}
//
// RoundTrip converts random objects of each version to another one and back. It names the fields
// that get lost, such as "spec.replicas: 3 became nothing".
package webhooktest
