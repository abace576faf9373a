// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/stamp"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// TestWritten_HasTheNewestVersionOfAllSlots: one version for each resource (P4).
func TestWritten_HasTheNewestVersionOfAllSlots(t *testing.T) {
	all := &ownership{stamp: stamp.Codec{Identity: "a", Host: "https://api"}, bySlot: map[slots.Slot]*owned.Slot{}}
	for s, versions := range map[slots.Slot][]string{1: {"998", "1003"}, 2: {"999", "1002"}, 3: {"1000", "1001"}} {
		of := fence.New(fence.Token{}, time.Now(), time.Minute)
		for _, v := range versions {
			of.Wrote(&ledger.Write{
				Request: ledger.Request{Verb: "patch", Version: "v1", Resource: "configmaps", Namespace: "default", Name: "part-" + v, Host: "https://api"},
				UID:     types.UID("uid-" + v), ResourceVersion: v, Effect: ledger.Stored,
			})
		}
		all.bySlot[s] = &owned.Slot{Number: s, Term: of}
	}
	left, err := all.stamp.Decode(all.written([]slots.Slot{1, 2, 3}, 500))
	testkit.NotEqual(t, err, nil)
	testkit.Equal(t, left.Unknown, 1)
	left, err = stamp.Codec{Host: "https://api", Limit: 500}.Decode(all.written([]slots.Slot{1, 2, 3}, 500))
	if err != nil || len(left.Written) != 1 || left.Written[0].ResourceVersion != "1003" || left.Holder != "a" {
		t.Errorf("it hands over %+v, %v", left, err)
	}
}
