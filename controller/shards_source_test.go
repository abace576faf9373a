// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// partial is a source that delivers its keys at once, but fails until it may sync.
type partial[K comparable] struct {
	initial []K
	may     chan struct{}
	replays int
	held    chan struct{} // if set, replays wait until it is closed

	status source.Status
	to     source.Sink[K]
}

func newPartial[K comparable](initial ...K) *partial[K] {
	p := &partial[K]{initial: initial, may: make(chan struct{})}
	p.status.SetFailing(errors.New("not ready"))
	return p
}

func (p *partial[K]) Status() *source.Status { return &p.status }
func (p *partial[K]) String() string         { return "Partial" }

func (p *partial[K]) Run(ctx context.Context, to source.Sink[K]) error {
	to.Queue.AddAll(p.initial, workqueue.AddOptions{Class: workqueue.Background})
	p.to = to
	select {
	case <-p.may:
		p.status.SetSynced()
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

func (p *partial[K]) Replay(context.Context) error {
	p.replays++
	if p.held != nil {
		<-p.held
	}
	p.to.Queue.AddAll(p.initial, workqueue.AddOptions{Class: workqueue.Background})
	return nil
}

// TestShards_AnUnsyncedSourceIsReplayedLater: it may have delivered some objects before the
// ownership, and delivers no object twice.
func TestShards_AnUnsyncedSourceIsReplayedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		late := newPartial(keyOf("b3"), keyOf("e"))
		r.control.Watch(late)
		r.start()
		r.wantSeen("started", time.Second, "") // so that it has delivered b3 before the ownership
		all.Acquire(ownership('b', nil))
		r.wantSeen("acquired", time.Second, "b1 b2")
		all.Acquire(ownership('e', nil))
		r.wantSeen("acquired", time.Second, "")
		close(late.may)
		r.wantSeen("synced", time.Second, "b3 e")
		testkit.Equal(t, late.replays, 1)
	})
}

// TestShards_CatchUpWaitsForAdoptions, so that a manager's Idle does.
func TestShards_CatchUpWaitsForAdoptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		r.start()
		r.wantSeen("started", time.Second, "")
		r.api.Lag(0)
		all.Acquire(ownership('a', r.leftBehind(10*time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testkit.NotEqual(t, r.control.CatchUp(ctx), nil, "it does not wait")
		ok(t, r.control.CatchUp(t.Context()))
		_, err := r.control.Quiet(t.Context())
		ok(t, err)
		r.wantSeen("caught up", 0, "a")
	})
}

// TestShards_ATermServesWhatItAdopts: between two terms the controller serves nothing.
func TestShards_ATermServesWhatItAdopts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		warmed := make(chan error)
		go func() { warmed <- r.control.Warm(ctx) }()
		a := ownership('a', nil)
		all.Acquire(a)
		for range 2 {
			take, stop := context.WithCancel(ctx)
			led := make(chan error)
			go func() { led <- r.control.Lead(take, ctx) }()
			r.wantSeen("leading", time.Second, "a")
			stop()
			ok(t, <-led)
			r.control.Requeue(keyOf("a"))
			r.wantEmptyQueue("between terms")
			testkit.Equal(t, a.Stopped(), false)
			testkit.Equal(t, *r.control.Snapshot().Slots, 0)
		}
		cancel()
		ok(t, <-warmed)
	})
}
