// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// round is the result of one trouble.
type round struct {
	n        int
	group    string
	trouble  *trouble
	from, to string
	gap      time.Duration // from the trouble to the next leader's first Reconcile of a new object
	renewal  time.Duration // from the last renewal to that Reconcile; 0 if the Lease was released
	took     string        // how the time was spent
	after    string        // the fate of the previous leader
}

// play plays one round.
func (g *group) play(ctx context.Context, n int, t *trouble) (round, error) {
	leader, err := g.victim(ctx)
	if err != nil {
		return round{}, fmt.Errorf("before round %d: %w", n, err)
	}
	was := leader.process
	task := fmt.Sprintf("task-%d", n)
	g.mu.Lock()
	g.task, g.doers = task, nil
	g.mu.Unlock()
	if g.verbose {
		g.table.say("round %d: %s %s", n, t.name, was.identity)
	}
	began := time.Now()
	undo, err := t.do(g, leader)
	if err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			<-was.joined
		}
		return round{}, errors.Join(fmt.Errorf("round %d: %s %s: %w", n, t.name, was.identity, err), errors.New(g.state()))
	}
	next, err := g.handOver(ctx, task, was)
	undo()
	if err != nil {
		return round{}, fmt.Errorf("round %d: after %q of %s: %w", n, t.name, was.identity, err)
	}
	r := round{n: n, group: g.prefix, trouble: t, from: was.identity, to: next.identity, gap: next.at.Sub(began)}
	if r.after, err = g.outcome(ctx, was); err != nil {
		return r, fmt.Errorf("round %d: after %q of %s: %w", n, t.name, was.identity, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, term := range g.ledger.terms() {
		if term.holder == next.identity && term.answered.After(began) {
			if last := g.ledger.lastRenewal(term.version); !last.IsZero() {
				r.renewal = next.at.Sub(last)
				r.took = fmt.Sprintf("asked for %s after the last renewal, got in %s, worked %s later",
					human(term.renew.Sub(last)), human(term.answered.Sub(term.renew)), human(next.at.Sub(term.answered)))
			}
			break
		}
	}
	return r, nil
}

// attempts bounds how many leaders in a row may end themselves. It matters only if a test has
// failed.
const attempts = 10

// victim returns the leader, at a random moment between two renewals or during one. On a busy
// machine, a Lease of one second is sometimes not renewed in time. Then the leader loses its term
// by itself and is no leader to harm: without a fence, it is about to exit (L5). victim waits for
// the next leader.
func (g *group) victim(ctx context.Context) (*replica, error) {
	for range attempts {
		leader, err := g.settle(ctx)
		if err != nil {
			return nil, err
		}
		if err := wait(ctx, g.lease/5+rand.N(g.lease/5)); err != nil {
			return nil, err
		}
		g.mu.Lock()
		leads, identity := leader.leads && !leader.ended, leader.identity
		g.mu.Unlock()
		if leads {
			return leader, nil
		}
		g.table.say("%s lost its term before its trouble: the machine is too busy for a Lease of %s", identity, g.lease)
	}
	return nil, fmt.Errorf("no leader keeps its term: %s", g.state())
}

// handOver creates a task and waits until a replica other than the previous leader has begun it.
func (g *group) handOver(ctx context.Context, task string, was *process) (next doer, err error) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: task, Labels: taskLabels}}
	if _, err := g.direct.Create(ctx, object); err != nil {
		return next, err
	}
	worked := false
	for n := 0; !worked; n++ {
		if n == attempts {
			return next, fmt.Errorf("no next leader keeps its term: %s", g.state())
		}
		// On a busy machine, the next leader may lose its term, too, and exit.
		if err := g.replace(was); err != nil {
			return next, err
		}
		err := g.wait(ctx, "another leader to do "+task+" and to write all objects", func() bool {
			for _, next = range g.doers {
				if worked = next.identity != was.identity && g.leadsLocked(next.identity); worked {
					return true
				}
			}
			return slices.ContainsFunc(g.replicas, func(r *replica) bool { return r.process != was && r.ended })
		})
		if err != nil {
			return next, errors.Join(err, errors.New(g.state()))
		}
	}
	return next, g.direct.Delete(ctx, types.NamespacedName{Namespace: g.namespace, Name: task})
}

// outcome waits until the previous leader has ended or follows another.
func (g *group) outcome(ctx context.Context, was *process) (string, error) {
	err := g.wait(ctx, was.identity+" to end or to follow", func() bool { return was.ended || was.follows != was.identity })
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err != nil:
		return "", err
	case !was.ended:
		return "stays, as a standby (L5)", nil
	case was.err == nil:
		return "has stopped", nil
	case was.cmd.ProcessState.ExitCode() == exitFailure:
		return "has ended itself: its work had no time to stop (L5)", nil
	default:
		return was.err.Error(), nil
	}
}

// wait waits for d, or until ctx is done.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
