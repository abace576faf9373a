// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
)

// driver runs the replicas, makes trouble and judges.
type driver struct {
	options

	out    io.Writer
	table  *table
	groups []*group
}

// run does what the flags request. It returns errBroken if a guarantee was broken, after printing
// which.
func (d *driver) run(ctx context.Context) (err error) {
	d.table = newTable(d.out, d.options)
	d.table.say("a control plane on this machine, and %d replicas of an operator, each a process; a Lease lasts %s", 3*d.number, d.lease)
	cluster, err := envtest.Start(ctx, envtest.Options{Progress: d.err})
	if err != nil {
		return err
	}
	defer func() { //nolint:contextcheck // above all when ctx is done
		err = errors.Join(err, cluster.Stop())
	}()
	direct, err := client.New(cluster.Config(), client.Options{FieldOwner: "ha-driver"})
	if err != nil {
		return err
	}
	defer direct.Close()
	groups := map[string]*group{}
	for i := range d.number {
		g := &group{
			options: d.options, table: d.table, http1: i%2 == 1, direct: client.For[*corev1.ConfigMap](direct),
			news: make(chan struct{}), ledger: newLedger(d.lease),
		}
		if d.number > 1 {
			g.prefix = fmt.Sprintf("%d", i+1)
		}
		if g.namespace, err = cluster.Namespace(ctx, "ha-"); err != nil {
			return err
		}
		groups[g.namespace], d.groups = g, append(d.groups, g)
	}
	net, err := newNetwork(ctx, cluster.Config(), groups)
	if err != nil {
		return err
	}
	defer net.Stop()
	for _, g := range d.groups {
		g.net = net
		for _, name := range []string{"a", "b", "c"} {
			cfg, err := net.Config()
			if err != nil {
				return err
			}
			g.replicas = append(g.replicas, &replica{name: name, cfg: cfg})
		}
	}
	if err := d.play(ctx); err != nil {
		return err
	}
	return d.judge()
}

// play makes all groups play rounds until there are enough, then stops all replicas.
func (d *driver) play(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	var n atomic.Int32
	var playing sync.WaitGroup
	for i, g := range d.groups {
		playing.Go(func() {
			defer g.stop()
			for k := d.first + i; ; k++ {
				round := int(n.Add(1))
				if round > d.rounds {
					break
				}
				r, err := g.play(ctx, round, &troubles[k%len(troubles)])
				if err != nil {
					cancel(err)
					return
				}
				d.table.round(&r)
			}
			if _, err := g.settle(ctx); err != nil { // late requests have arrived then
				cancel(err)
			}
		})
	}
	playing.Wait()
	d.table.clock(time.Since(began), time.Now().Round(0).Sub(began.Round(0)))
	return context.Cause(ctx)
}

var errBroken = errors.New("a promise is broken")

// judge prints the verdict.
func (d *driver) judge() error {
	d.table.gaps()
	var all []*verdict
	for _, g := range d.groups {
		g.mu.Lock()
		all = append(all, g.ledger.judge())
		g.mu.Unlock()
	}
	d.table.writes(all)
	d.table.late(all)
	if d.table.verdict(all) {
		return nil
	}
	return errBroken
}
