// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhooktest_test

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/webhook"
	"github.com/setpoint-dev/setpoint/webhook/webhooktest"
)

// A test of all conversions of an operator.
func ExampleRoundTrip() {
	test := func(t *testing.T, hooks *webhook.Webhooks) {
		webhooktest.RoundTrip(t, hooks, webhooktest.Options{
			HubOnly: []string{"spec.cache"}, // no other version has this field
		})
	}
	_ = test // func TestConversion(t *testing.T)
}

// A policy and a webhook that shall decide alike. The configuration is of a server of envtest.
func ExampleSameAsPolicy() {
	test := func(t *testing.T, cfg *rest.Config, hooks *webhook.Webhooks, accepted, rejected client.Object) {
		webhooktest.SameAsPolicy(t, cfg, hooks, webhooktest.PolicyOptions{
			Examples: []client.Object{accepted, rejected},
		})
	}
	_ = test // func TestPolicy(t *testing.T)
}
