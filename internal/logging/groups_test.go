// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package logging_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestGroups_WhatIsMasked compares the groups of two errors.
func TestGroups_WhatIsMasked(t *testing.T) {
	type failure struct{ key, text string }
	for name, test := range map[string]struct {
		a, b failure
		same bool
	}{
		"name":                        {failure{"prod/web", "get web: refused"}, failure{"prod/api", "get api: refused"}, true},
		"namespace":                   {failure{"prod/web", "no quota in prod"}, failure{"dev/web", "no quota in dev"}, true},
		"key":                         {failure{"prod/web", "prod/web: full"}, failure{"dev/api", "dev/api: full"}, true},
		"name without a namespace":    {failure{"/web", "node web is gone"}, failure{"/api", "node api is gone"}, true},
		"quoted name":                 {failure{"prod/web", `secrets "web" not found`}, failure{"prod/api", `secrets "api" not found`}, true},
		"name of a child":             {failure{"prod/web", "web-config is missing"}, failure{"prod/api-v2", "api-v2-config is missing"}, true},
		"longest name":                {failure{"web-1/web", "get web-1: refused"}, failure{"prod/web", "get web: refused"}, true},
		"parts of a struct":           {failure{"{east prod/web}", "east: no web"}, failure{"{west prod/api}", "west: no api"}, true},
		"number as a key":             {failure{"7", `no "7"`}, failure{"8", `no "8"`}, true},
		"numbers":                     {failure{"a", "took 1.5s, 12 of 40"}, failure{"b", "took 7.25s, 3 of 9"}, true},
		"resource version":            {failure{"a", "at version 7812"}, failure{"b", "at version 99"}, true},
		"address":                     {failure{"a", "dial tcp 10.0.0.1:443: refused"}, failure{"b", "dial tcp 10.1.20.3:80: refused"}, true},
		"hash":                        {failure{"a", "pod web-7c9f8d-x2kqz failed"}, failure{"b", "pod web-5b4d-9zzxw failed"}, true},
		"UID":                         {failure{"a", "precondition: UID 7f2dcafe-abcd-face-beef-0123456789ab"}, failure{"b", "precondition: UID fade1234-5678-4abc-9def-abcdefabcdef"}, true},
		"number at the end of a word": {failure{"a", "step1 failed"}, failure{"a", "phase1 failed"}, false},
		"quoted number":               {failure{"a", `bad value "1"`}, failure{"a", `bad value "2"`}, false},
		"number after a quote":        {failure{"a", `bad "x" in line 1`}, failure{"a", `bad "x" in line 2`}, true},
		"number in an escaped quote":  {failure{"a", `bad "say \"1\""`}, failure{"a", `bad "say \"2\""`}, false},
		"number after an open quote":  {failure{"a", `19" screen 1`}, failure{"a", `17" screen 2`}, true},
		"another word":                {failure{"a", "connection refused"}, failure{"a", "connection reset"}, false},
		"a name inside a word":        {failure{"a", "a small tower"}, failure{"small", "a small tower"}, false},
		"a short name":                {failure{"default/a", "bad gateway"}, failure{"default/b", "bad gateway"}, true},
		"wrapped differently":         {failure{"a", "create: full"}, failure{"a", "update: full"}, false},
		"no text":                     {failure{"a", ""}, failure{"b", ""}, true},
		"other letters":               {failure{"gr", "größe 1 über"}, failure{"b", "größe 22 über"}, true},
		"beyond what counts":          {failure{"a", strings.Repeat("x", 5000)}, failure{"b", strings.Repeat("x", 6000)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var g logging.Groups
			for n := range 11 { // one more than a group may have at once
				if _, ok := g.Few(test.a.key, test.a.text); ok != (n < 10) {
					t.Fatalf("error %d of the group is logged: %t", n+1, ok)
				}
			}
			_, fresh := g.Few(test.b.key, test.b.text)
			testkit.NotEqual(t, fresh, test.same, fmt.Sprintf("%q of %s and %q of %s are one group", test.a.text, test.a.key, test.b.text, test.b.key))
		})
	}
}

// TestGroups_FurtherOnesAreCounted: after 100 new groups, until the next call of Further.
func TestGroups_FurtherOnesAreCounted(t *testing.T) {
	var g logging.Groups
	logged := func(from, to int) (n int) {
		for i := from; i < to; i++ {
			if _, ok := g.Few(fmt.Sprint("default/", i), fmt.Sprintf("bad %q", fmt.Sprint("x", i))); ok {
				n++
			}
		}
		return n
	}
	want := func(what string, got, want any) {
		t.Helper()
		testkit.Equal(t, fmt.Sprint(got), fmt.Sprint(want), what)
	}
	want("lines of 250 groups", logged(0, 250), 100)
	want("lines of 150 of them again", logged(50, 200), 50)
	args, ok := g.Further()
	want("the counts", []any{args, ok}, []any{[]any{"errors", 250, "groups", 150, "key", "default/199"}, true})
	_, ok = g.Further()
	want("counts without errors", ok, false)
	want("lines of the further groups", logged(100, 250), 100)
	args, _ = g.Further()
	want("the next counts", args, []any{"errors", 50, "groups", 50, "key", "default/249"})
}

// TestGroups_ForgetsTheLeastUsed: of more than 500 groups, the ones that are used keep their limit.
func TestGroups_ForgetsTheLeastUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g logging.Groups
		few := func(i int) (logged int) {
			time.Sleep(time.Microsecond) // for the order
			for range 20 {
				if _, ok := g.Few("a", fmt.Sprintf("bad %q", fmt.Sprint("x", i))); ok {
					logged++
				}
			}
			return logged
		}
		var got []int
		for i := range 510 {
			if few(i); i%100 == 99 {
				g.Further()
				few(0)
			}
		}
		for _, i := range []int{0, 15, 5} { // used, not forgotten, forgotten
			got = append(got, few(i))
		}
		testkit.SlicesEqual(t, got, []int{0, 0, 10}, "lines")
	})
}

func BenchmarkGroups(b *testing.B) {
	var g logging.Groups
	const text = `update the status: Put "https://10.96.0.1:443/apis/apps/v1/namespaces/default/deployments/web-17/status": dial tcp 10.96.0.1:443: connect: connection refused`
	b.ReportAllocs()
	for b.Loop() {
		g.Few("default/web-17", text)
	}
}
