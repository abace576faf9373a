// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestInformerState(t *testing.T) {
	for want, s := range map[string]hook.InformerState{
		"Pod.v1: synced": {Kind: "Pod.v1", Phase: hook.Synced},
		"Site.v1.example.com: waiting for its API: not served": {Kind: "Site.v1.example.com", Phase: hook.Waiting, Err: errors.New("not served")},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
