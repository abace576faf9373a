// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"testing"

	"github.com/setpoint-dev/setpoint/webhook"
	"github.com/setpoint-dev/setpoint/webhook/webhooktest"
)

// TestConversions_LoseNothing converts random objects of all kinds to each version and back.
func TestConversions_LoseNothing(t *testing.T) {
	hooks, err := newWebhooks(webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	webhooktest.RoundTrip(t, hooks, webhooktest.Options{})
}
