// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/manager"
)

// bridgeRead is a kind to read, and how the cache of crbridge stores it.
type bridgeRead struct {
	kind    string
	storage cache.Storage
	title   string
	most    float64 // bound for level b, relative to controller-runtime; 0 is none
}

// bridgeReads have both forms of built-in kinds, which are packed by default, and of custom
// resources with a Go type, which are decoded by default.
var bridgeReads = []bridgeRead{
	{"typed", cache.DefaultStorage, "custom resource of 2 KB", 1.0},
	{"pods", cache.Decoded, "Pod of 1.6 KB, decoded", 1.0},
	{"pods", cache.DefaultStorage, "Pod of 1.6 KB, packed (default)", 0},
	{"configmaps", cache.Decoded, "small ConfigMap, decoded", 1.0},
	{"configmaps", cache.DefaultStorage, "small ConfigMap, packed (default)", 0},
}

const bridgeReadObjects = 1000

// reads measures a typed Get of the manager's client in a Reconcile, from the cache.
func (p *bridge) reads(ctx context.Context) (rows []bridgeRow, err error) {
	for _, r := range bridgeReads {
		results, err := r.takeTurns(ctx, p.rounds, p.gets)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.title, err)
		}
		row := bridgeRow{title: "cached Get in a Reconcile, " + r.title, format: "%.0f ns", most: r.most, compared: true}
		for _, all := range results {
			var ns, allocs []float64
			for _, one := range all {
				ns, allocs = append(ns, one.ns), append(allocs, one.allocs)
			}
			row.add(fmt.Sprintf("%.0f allocations", median(allocs)), ns...)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// takeTurns runs the managers of all contestants at once. Each has a Reconcile that reads when it
// is its turn, starting with a different one each round.
func (r bridgeRead) takeTurns(ctx context.Context, rounds, gets int) ([][]result, error) {
	server := httptest.NewServer(newPackedServer(0, servedKind{packedKind: packedKindOf(r.kind), objects: bridgeReadObjects}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var readers []*bridgeReader
	for _, c := range bridgeContestants {
		read := &bridgeReader{kind: packedKindOf(r.kind), gets: gets, turns: make(chan bool), results: make(chan result), failed: make(chan error, 1)}
		c.newManager = c.stored(r.storage)
		readers = append(readers, read)
		running.Go(func() {
			if err := read.run(ctx, c, &rest.Config{Host: server.URL, QPS: -1}); err != nil {
				read.failed <- fmt.Errorf("%s: %w", c.name, err)
			}
		})
	}
	results := make([][]result, len(readers))
	for round := range rounds + 1 { // the first fills caches of types and buffers
		for i := range readers {
			which := (i + round) % len(readers)
			one, err := readers[which].turn(ctx)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				results[which] = append(results[which], one)
			}
		}
	}
	return results, nil
}

// stored returns the contestant's constructor of managers whose cache has the storage.
func (c bridgeContestant) stored(s cache.Storage) func(*rest.Config, crmanager.Options) (crmanager.Manager, error) {
	if s == cache.DefaultStorage || c.name != levelAName && c.name != levelBName {
		return c.newManager
	}
	return func(cfg *rest.Config, o crmanager.Options) (crmanager.Manager, error) {
		return crbridge.New(cfg, o, crbridge.Settings{Configure: func(o *manager.Options) { o.Cache.Storage = s }})
	}
}

// bridgeReader is a contestant.
type bridgeReader struct {
	kind    *packedKind
	gets    int // of a turn
	turns   chan bool
	results chan result
	failed  chan error
	n       atomic.Int64 // Reconciles
}

// run ends with ctx.
func (r *bridgeReader) run(ctx context.Context, c bridgeContestant, cfg *rest.Config) error {
	mgr, err := c.newManager(cfg, c.options(newPackedScheme()))
	if err != nil {
		return err
	}
	reader := mgr.GetClient()
	var keys []key
	for i := range bridgeReadObjects {
		o := packedMeta(i, created)
		keys = append(keys, key{Namespace: o.Namespace, Name: o.Name})
	}
	read := func(ctx context.Context) (err error) {
		for i := range r.gets {
			if err = reader.Get(ctx, keys[i%len(keys)], r.kind.runtimes()); err != nil {
				return err
			}
		}
		return nil
	}
	err = c.complete(mgr, wiring{object: r.kind.runtimes(), workers: 1}, reconcile.Func(func(inside context.Context, _ reconcile.Request) (reconcile.Result, error) {
		if r.n.Add(1) < bridgeReadObjects {
			return reconcile.Result{}, nil
		}
		for { // the last key of the first list
			select {
			case <-r.turns:
			case <-ctx.Done():
				return reconcile.Result{}, nil
			}
			var err error
			took := timed(r.gets, func() { err = read(inside) })
			if err != nil {
				r.failed <- err
				return reconcile.Result{}, nil
			}
			r.results <- took
		}
	}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// turn lets the reader read.
func (r *bridgeReader) turn(ctx context.Context) (took result, err error) {
	select {
	case r.turns <- true:
	case err := <-r.failed:
		return took, err
	case <-ctx.Done():
		return took, ctx.Err()
	}
	select {
	case took := <-r.results:
		return took, nil
	case err := <-r.failed:
		return took, err
	case <-ctx.Done():
		return took, ctx.Err()
	}
}
