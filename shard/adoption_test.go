// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/stamp"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
	"github.com/setpoint-dev/setpoint/term"
)

// TestWritten_KeepsTheNewestWriteOfAllSlots: without room for all writes, the newest one stays,
// whichever slot it is in (P4). A cache that shows it shows the others.
func TestWritten_KeepsTheNewestWriteOfAllSlots(t *testing.T) {
	all := &adoptions{stamp: stamp.Codec{Identity: "a", Host: "https://api"}, of: map[slots.Slot]*owned.Adoption{}}
	const newest = "1003"
	for s, versions := range map[slots.Slot][]string{1: {"998", newest}, 2: {"999", "1002"}, 3: {"1000", "1001"}} {
		of := term.New(term.Token{}, time.Now(), time.Minute)
		for _, v := range versions {
			of.Wrote(&ledger.Write{
				Request: ledger.Request{Verb: "patch", Version: "v1", Resource: "configmaps", Namespace: "default", Name: "part-" + v, Host: "https://api"},
				UID:     types.UID("uid-" + v), ResourceVersion: v, Effect: ledger.Stored,
				Object: &metav1.PartialObjectMetadata{},
			})
		}
		all.of[s] = &owned.Adoption{Number: s, Term: of}
	}
	for _, limit := range []int{500, 2000} {
		codec := stamp.Codec{Host: "https://api", Limit: limit}
		text := all.written([]slots.Slot{1, 2, 3}, limit)
		left, err := codec.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		kept := ""
		for _, w := range left.Writes {
			kept += fmt.Sprintf("%s ", w.ResourceVersion)
		}
		if want := map[int]string{500: "1000 1001 1002 1003 ", 2000: "998 999 1000 1001 1002 1003 "}[limit]; kept != want {
			t.Errorf("in %d bytes: %s, want %s", limit, kept, want)
		}
	}
}
