// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

var objects = flag.Int("objects", 300, "the number of sites of the throughput test; 0: skip it")

// apiTakes is how long the network delays each write of a Reconcile.
const apiTakes = 20 * time.Millisecond

// TestThroughput compares one replica with five. A Reconcile waits for its two writes most of the
// time, so the replicas need little CPU.
func TestThroughput(t *testing.T) {
	if *objects == 0 {
		t.Skip("-objects 0")
	}
	one := throughput(t, 1)
	five := throughput(t, replicas)
	t.Logf("%d sites, each Reconcile with two writes that take %s, one worker:", *objects, apiTakes)
	t.Logf("1 replica: %.1f sites/s; %d replicas: %.1f sites/s; ratio %.2f (all sites, with the last replica's rest: %.2f)",
		one.steady, replicas, five.steady, five.steady/one.steady, one.took.Seconds()/five.took.Seconds())
}

type speed struct {
	steady float64       // sites per second, in the middle
	took   time.Duration // all sites
}

// throughput creates sites faster than the replicas serve them, and measures these.
func throughput(t *testing.T, n int) (s speed) {
	f, ctx := newFleet(t, orders{Lease: 15 * time.Second, Workers: 1, OneLeader: *oneLeader})
	defer f.stop()
	f.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"patch"}, Resources: []string{"configmaps"}}, Delay: apiTakes})
	for i := range n {
		if _, err := f.add(string(rune('a' + i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.divided(ctx); err != nil {
		t.Fatal(err, f.state())
	}
	began := time.Now()
	f.createAll(ctx)
	from, until := *objects/5, *objects*3/5 // every replica has work then
	var first, last time.Time
	err := f.wait(ctx, "all sites", func() bool {
		done := len(f.parts) / 2
		if first.IsZero() && done >= from {
			first, from = time.Now(), done
		}
		if last.IsZero() && done >= until {
			last, until = time.Now(), done
		}
		return done == *objects
	})
	if err != nil {
		t.Fatal(err, f.state())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleLocked()
	for _, what := range f.judge.broken {
		t.Error(what)
	}
	return speed{float64(until-from) / last.Sub(first).Seconds(), time.Since(began)}
}

// createAll creates all sites.
func (f *fleet) createAll(ctx context.Context) {
	var creating sync.WaitGroup
	const atOnce = 8
	for first := range atOnce {
		creating.Go(func() {
			for i := first; i < *objects; i += atOnce {
				if err := f.create(ctx, fmt.Sprintf("site-%d", i)); err != nil {
					f.failed(err)
					return
				}
			}
		})
	}
	creating.Wait()
}
