// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crbridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// fleet is three replicas that share a Lease.
type fleet struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	plan      *plan // of all fleets

	members   []*process
	started   int
	processes []*process // all that were started
	running   sync.WaitGroup
	recording sync.WaitGroup
	began     time.Time // of the last trouble of a leader
	results   []result

	mu      sync.Mutex // guards the fields below and the state of processes
	news    chan struct{}
	err     error
	history []entry
	mishaps []mishap
	version uint64 // the newest of the history
	holder  string // of the Lease
	task    string // of the round
	doers   []doer // of the task
}

// doer is a Reconcile of the task.
type doer struct {
	*process

	at time.Time
}

// patience bounds every wait for an expected event. It matters only if a test has failed.
const patience = 60 * time.Second

// change calls a function under the lock and wakes the waiters.
func (f *fleet) change(locked func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	locked()
	close(f.news)
	f.news = make(chan struct{})
}

func (f *fleet) failLocked(err error) { f.err = errors.Join(f.err, err) }

// wait returns when readyLocked returns true. It calls it whenever there is news.
func (f *fleet) wait(ctx context.Context, what string, readyLocked func() bool) error {
	ready := f.within(ctx, patience, readyLocked)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil || ready:
		return f.err
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return fmt.Errorf("waited %s for %s", patience, what)
	}
}

// within reports whether readyLocked returns true in time.
func (f *fleet) within(ctx context.Context, d time.Duration, readyLocked func() bool) bool {
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	for {
		f.mu.Lock()
		ready, news, failed := readyLocked(), f.news, f.err != nil
		f.mu.Unlock()
		if ready || failed {
			return ready
		}
		select {
		case <-news:
		case <-timeout.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// settle restarts ended replicas and waits for the start of a round: all are warm and one leads. It
// returns the leader at a random moment between two renewals.
func (f *fleet) settle(ctx context.Context) (leader *process, err error) {
	for {
		if err := f.restart(nil); err != nil {
			return nil, err
		}
		ended := false
		ready := func() bool {
			leader, ended = f.leaderLocked()
			return leader != nil || ended
		}
		if err := f.wait(ctx, "one replica to lead, and the others to be warm", ready); err != nil {
			return nil, err
		}
		if ended {
			continue // on a busy machine, a short Lease is sometimes not renewed in time
		}
		lost := f.within(ctx, rand.N(fleetRetry*6/5), func() bool {
			now, _ := f.leaderLocked()
			return now != leader
		})
		if !lost {
			return leader, ctx.Err()
		}
	}
}

// leaderLocked returns the leader if all replicas are as at the start of a round, and whether one
// has ended.
func (f *fleet) leaderLocked() (leader *process, ended bool) {
	for _, p := range f.members {
		switch {
		case p.ended:
			return nil, true
		case !p.warm || p.leads != (p.identity == f.holder):
			return nil, false
		case p.leads:
			leader = p
		}
	}
	return leader, false
}

// restart starts a replica in the place of each one that has ended, except spared.
func (f *fleet) restart(spared *process) error {
	for i, p := range f.members {
		program := programs[i]
		if p != nil {
			f.mu.Lock()
			ended := p.ended
			f.mu.Unlock()
			if !ended || p == spared {
				continue
			}
			program = p.program
		}
		made, err := f.start(program)
		if err != nil {
			return err
		}
		f.members[i] = made
	}
	return nil
}

// stop ends all replicas.
func (f *fleet) stop() {
	for _, p := range f.processes {
		p.kill()
	}
	f.running.Wait()
}

// state describes the replicas, for errors.
func (f *fleet) state() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := fmt.Sprintf("%q holds the Lease", f.holder)
	for _, p := range f.members {
		if p != nil {
			s += fmt.Sprintf("\n%s: warm %t, leads %t, ended %t; the end of its log:\n%s", p.identity, p.warm, p.leads, p.ended, &p.errs)
		}
	}
	return s
}
