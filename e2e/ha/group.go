// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// group is three replicas that share a Lease.
type group struct {
	options

	prefix    string // of identities, if there are several groups
	namespace string
	http1     bool
	net       *network
	table     *table
	direct    *client.Handle[*corev1.ConfigMap] // bypasses the network
	replicas  []*replica
	programs  testkit.Replicas
	running   sync.WaitGroup // goroutines that listen to processes

	mu     sync.Mutex // guards the fields below and the state of processes
	news   chan struct{}
	ledger *ledger
	task   string // the latest task
	doers  []doer // of task
}

// doer is a Reconcile of the task.
type doer struct {
	identity string
	at       time.Time
}

// newsLocked wakes the waiters.
func (g *group) newsLocked() {
	close(g.news)
	g.news = make(chan struct{})
}

// patience bounds every wait for an expected event. It matters only if a test has failed.
func (g *group) patience() time.Duration { return 30*time.Second + 5*g.lease }

// wait returns when readyLocked returns true. It calls it whenever there is news.
func (g *group) wait(ctx context.Context, what string, readyLocked func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, g.patience(), fmt.Errorf("waited %s for %s", g.patience(), what))
	defer cancel()
	for {
		g.mu.Lock()
		ready, news := readyLocked(), g.news
		g.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// holderLocked returns the holder of the Lease according to the API server.
func (g *group) holderLocked() string {
	if n := len(g.ledger.leases); n > 0 {
		return g.ledger.leases[n-1].holder
	}
	return ""
}

// leadsLocked reports whether a process has written all objects in its term.
func (g *group) leadsLocked(identity string) bool {
	return slices.ContainsFunc(g.replicas, func(r *replica) bool { return r.identity == identity && r.leads })
}

// settle restarts ended replicas and waits for the start of a round: all are warm, one leads, and
// the others follow it. It returns the leader.
func (g *group) settle(ctx context.Context) (*replica, error) {
	if err := g.replace(nil); err != nil {
		return nil, err
	}
	var leader *replica
	someEnded := false
	err := g.wait(ctx, "one replica to lead, and the others to be warm and to follow it", func() bool {
		leader, someEnded = nil, false
		holder := g.holderLocked()
		for _, r := range g.replicas {
			someEnded = someEnded || r.ended
			if !r.warm || r.follows != holder || r.leads != (r.identity == holder) {
				return someEnded
			}
			if r.leads {
				leader = r
			}
		}
		return someEnded || leader != nil
	})
	if err != nil {
		return nil, errors.Join(err, errors.New(g.state()))
	}
	if someEnded {
		return g.settle(ctx)
	}
	return leader, nil
}

// replace restarts the replicas that have ended, except spared.
func (g *group) replace(spared *process) error {
	for _, r := range g.replicas {
		if r.process != nil && (r.process == spared || !g.hasEnded(r.process)) {
			continue
		}
		if err := g.start(r); err != nil {
			return err
		}
	}
	return nil
}

func (g *group) hasEnded(p *process) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.ended
}

// state describes the replicas, for errors.
func (g *group) state() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := fmt.Sprintf("%q holds the Lease", g.holderLocked())
	for _, r := range g.replicas {
		s += fmt.Sprintf("\n%s: warm %t, leads %t, follows %q", r.identity, r.warm, r.leads, r.follows)
		if r.ended {
			s += fmt.Sprintf(", ended with %v; the end of its log:\n%s", r.cmd.ProcessState, &r.errs)
		}
	}
	return s
}

// stop kills all replicas and waits for their end.
func (g *group) stop() {
	for _, r := range g.replicas {
		if r.process != nil {
			r.end()
		}
	}
	g.running.Wait()
}
