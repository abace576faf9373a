// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/ledger"
)

// awaitLeader waits for the writes of the previous term, if that was released.
func (k *pendingWrites) awaitLeader(take, work context.Context) (goOn bool) {
	k.inherited.leader.Store(nil)
	leading := fence.FromContext(work)
	if leading == nil {
		return true
	}
	leading.Reads(k.informers)
	defer k.inherited.waits.Store(nil)
	show := func(what string) { k.inherited.waits.Store(&what) }
	return k.awaitHandover(take, work, leading.Inherited(), wait{result: &k.inherited.leader, show: show})
}

// wait is where await reports: the write that it waits for, and the given-up ones in the end.
type wait struct {
	result *atomic.Pointer[lastRun]
	show   func(what string)
	aside  func(lag) bool // reports what is not waited for
}

// awaitHandover waits for the writes of a former leader, or of the former owner of slots.
func (k *pendingWrites) awaitHandover(take, work context.Context, left *fence.Handover, to wait) (goOn bool) {
	if left == nil || k.bound < 0 {
		return true
	}
	began := time.Now()
	to.aside = func(g lag) bool { return k.informers.Hosts() > 1 && g.Unread() }
	expired, doubts, goOn := k.await(take, work, to, batches(left, began))
	if !goOn {
		return false
	}
	if n := unknownIn(left); n > 0 {
		doubts = errors.Join(doubts, fmt.Errorf("the effect of %d writes is unknown; the caches have what the API server had after the takeover", n))
	}
	if expired {
		doubts = errors.Join(k.missingOf(to.result), doubts)
		k.logger(work).Warn("took over before the previous leader's writes were visible in the cache", "leader", left.Holder, "err", doubts)
	}
	k.o.Hook.Send(&hook.Takeover{
		Controller: k.name, Took: time.Since(began), Writes: len(left.Written), Expired: expired, Doubts: doubts,
	})
	return true
}

// batches are what a former leader has handed over. If an informer cannot decide about a batch, the
// API server is asked, as about a write without an answer.
func batches(left *fence.Handover, began time.Time) (all []pendingWrite) {
	add := func(of fence.Written, batch consistency.Batch) {
		w := ledger.Write{ResourceVersion: of.ResourceVersion, Effect: ledger.Stored, Unknown: "the previous leader has written or read it"}
		w.Verb, w.Host, w.Group, w.Resource = "update", of.Host, of.Resource.Group, of.Resource.Resource
		all = append(all, pendingWrite{Write: w, batch: &batch, taken: began})
	}
	for _, of := range left.Written {
		deleted := map[types.UID]bool{}
		for _, d := range of.Deleted {
			deleted[d.UID] = d.Marked
		}
		add(of, consistency.Batch{Deleted: deleted, Lost: of.Unknown > 0})
	}
	if left.Unknown > 0 {
		add(fence.Written{}, consistency.Batch{Lost: true})
	}
	return all
}

func unknownIn(left *fence.Handover) int {
	n := left.Unknown
	for _, w := range left.Written {
		n += w.Unknown
	}
	return n
}

// await returns when the caches show the awaited writes, when Options.ReadYourWrites is over, or
// when the controller stops. Unless it stops, to.result gets the given-up writes.
func (k *pendingWrites) await(take, work context.Context, to wait, awaited []pendingWrite) (expired bool, doubts error, goOn bool) {
	p := &lastRun{writes: awaited}
	bound := time.After(k.bound)
	for checks := 0; ; checks++ {
		k.setAside(p, to.aside)
		last, doubts := k.outstanding(take, p)
		if last == nil {
			p.giveUp(false)
			to.result.Store(p)
			return false, doubts, true
		}
		to.show(last.String())
		shown := make(consistency.Signal, 1)
		unnotify := last.Notify(shown)
		goOn := true
		select {
		case <-shown:
		case <-time.After(time.Second << min(checks, 10)):
		case <-bound:
			expired = true
		case <-take.Done():
			goOn = false
		case <-work.Done():
			goOn = false
		}
		unnotify()
		if expired {
			p.giveUp(true)
			to.result.Store(p)
		}
		if expired || !goOn {
			return expired, doubts, goOn
		}
	}
}

// setAside gives up some writes, such as those to a cluster that cannot be reached: the others go
// on, and no read answers from its informers before they have synced.
func (k *pendingWrites) setAside(p *lastRun, which func(lag) bool) {
	for i := range p.writes {
		w := &p.writes[i]
		if missing, _ := k.lagOf(w); w.state.pending() && missing != nil && which(missing) {
			w.state = writeGivenUp
		}
	}
}

func (k *pendingWrites) missingOf(before *atomic.Pointer[lastRun]) error {
	p := before.Load()
	if p == nil {
		return nil
	}
	return k.stillMissing(&lastRun{writes: slices.Clone(p.writes)}) // a copy: calls overlap
}

// awaitOwn waits for the writes of all keys' last Reconciles. It returns an error if ctx ends, or
// Options.ReadYourWrites is over.
func (k *visibility[K]) awaitOwn(ctx context.Context) error {
	if k.bound < 0 {
		return nil
	}
	var own []pendingWrite
	for _, r := range k.records.all() {
		if r.past != nil {
			own = append(own, r.past.pending()...)
		}
	}
	var last string
	expired, _, goOn := k.await(ctx, ctx, wait{
		result: &atomic.Pointer[lastRun]{}, show: func(what string) { last = what },
		aside: func(g lag) bool { return g.Unread() || g.Unserved() },
	}, own)
	switch {
	case expired:
		return fmt.Errorf("after %s, its caches do not show what it wrote last: %s", k.bound, last)
	case !goOn:
		return fmt.Errorf("its caches do not show yet what it wrote last: %s: %w", last, context.Cause(ctx))
	default:
		return nil
	}
}

// pending returns the writes that the caches may not show, also those that were given up.
func (p *lastRun) pending() (all []pendingWrite) {
	now := *p // it is in a record
	now.refresh()
	for _, w := range now.writes {
		if w.event == nil && (w.state.pending() || w.state == writeGivenUp) {
			w.state = writeWaits
			all = append(all, w)
		}
	}
	return all
}
