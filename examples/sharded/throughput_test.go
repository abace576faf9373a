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

var objects = flag.Int("objects", 100, "the number of sites of the throughput test; 0: skip it")

// apiTakes is how long the network delays each write of a Reconcile.
const apiTakes = 20 * time.Millisecond

// mostServed is how many sites are counted.
const mostServed = 4000

// TestThroughput compares one replica with five. A Reconcile waits for its two writes most of the
// time, so the replicas need little CPU.
func TestThroughput(t *testing.T) {
	if *objects == 0 {
		t.Skip("-objects 0")
	}
	one := throughput(t, 1)
	five := throughput(t, replicas)
	t.Logf("%d sites; a Reconcile has two writes that take %s each; each replica has one worker\n1 replica:  %6.1f sites/s\n%d replicas: %6.1f sites/s\nratio %.2f",
		*objects, apiTakes, one, replicas, five, five/one)
}

// throughput returns how many sites a second the replicas serve while each of them has work.
func throughput(t *testing.T, n int) float64 {
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
	f.createAll(ctx)
	f.mu.Lock()
	began, from := time.Now(), len(f.parts)/2
	f.mu.Unlock()
	until := min(from+mostServed, *objects*3/5)
	err := f.wait(ctx, fmt.Sprintf("%d sites", until), func() bool { return len(f.parts)/2 >= until })
	took := time.Since(began)
	if err != nil || until <= from {
		t.Fatalf("after %d sites: %v\n%s", from, err, f.state())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleLocked()
	for _, what := range f.judge.broken {
		t.Error(what)
	}
	return float64(until-from) / took.Seconds()
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
