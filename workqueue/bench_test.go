// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/slab"
)

// These benchmarks are for profiling. Package bench compares with client-go.

func everything() Options[name] {
	return Options[name]{
		Name:    "everything",
		Classes: ThreeClasses(),
		Tenant:  func(k name) string { return k.Namespace },
		Hook: hook.Join(
			hook.On(func(*hook.QueueAdded) {}),
			hook.On(func(*hook.QueueTaken) {}),
			hook.On(func(*hook.QueueSettled) {}),
			hook.On(func(*hook.QueueDelayed) {}),
		),
	}
}

func benchKeys(n int) []name {
	keys := make([]name, n)
	for i := range keys {
		keys[i] = name{fmt.Sprintf("namespace-%d", i%100), fmt.Sprintf("object-%d", i)}
	}
	return keys
}

var benchHow = AddOptions{Class: Interactive, Reason: Reason{Source: "pods", Event: "Update", Object: "default/pod", ResourceVersion: "12345"}}

func BenchmarkCycle(b *testing.B) {
	for which, o := range map[string]Options[name]{"plain": {}, "everything": everything()} {
		b.Run(which, func(b *testing.B) {
			q, keys := newQueue(b, o), benchKeys(1024)
			how := AddOptions{}
			if which != "plain" {
				how = benchHow
			}
			for i := 0; b.Loop(); i++ {
				q.AddWith(keys[i&1023], how)
				item, _ := q.Get(ctx)
				_ = item.Done()
			}
		})
	}
}

func BenchmarkDuplicate(b *testing.B) {
	for which, o := range map[string]Options[name]{"plain": {}, "everything": everything()} {
		b.Run(which, func(b *testing.B) {
			q, keys := newQueue(b, o), benchKeys(1024)
			how := AddOptions{}
			if which != "plain" {
				how = benchHow
			}
			for i := 0; b.Loop(); i++ {
				if which == "plain" {
					q.Add(keys[i&1023])
				} else {
					q.AddWith(keys[i&1023], how)
				}
			}
		})
	}
}

// BenchmarkSnapshot reports for how long a Snapshot of a million keys holds the lock at most: the
// median and the maximum of all rounds.
func BenchmarkSnapshot(b *testing.B) {
	q := newQueue(b, Options[name]{})
	for _, k := range benchKeys(1_000_000) {
		q.AddWith(k, benchHow)
	}
	var rounds []time.Duration
	for b.Loop() {
		var began time.Time
		longest := time.Duration(0)
		keys := make([]KeyState[name], 0, 1_000_000)
		var reasons []Reason
		before := func() {
			reasons = make([]Reason, 0, slab.ChunkLen)
			began = time.Time{}
		}
		read := func(e *entry[name]) KeyState[name] {
			if began.IsZero() {
				began = time.Now()
			}
			return q.stateLocked(e, &reasons)
		}
		for part := range inParts(q, before, read) {
			longest = max(longest, time.Since(began))
			keys = append(keys, part...)
		}
		rounds = append(rounds, longest)
	}
	slices.Sort(rounds)
	b.ReportMetric(float64(rounds[len(rounds)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(rounds[len(rounds)-1].Microseconds())/1000, "ms-max")
}
