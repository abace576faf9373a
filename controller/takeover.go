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

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// awaitLeader waits for the writes of the previous term, if that was released.
func (k *gaps) awaitLeader(take, work context.Context) (goOn bool) {
	k.inherited.leader.Store(nil)
	leading := term.Of(work)
	if leading == nil {
		return true
	}
	defer k.inherited.waits.Store(nil)
	return k.awaitHandover(take, work, leading.Inherited(), wait{&k.inherited.leader, k.showWait})
}

func (k *gaps) showWait(what string) { k.inherited.waits.Store(&what) }

// wait is where await reports: the write that it waits for, and the given-up ones in the end.
type wait struct {
	result *atomic.Pointer[past]
	show   func(what string)
}

// awaitHandover waits for the writes of a former leader, or of the former owner of slots.
func (k *gaps) awaitHandover(take, work context.Context, left *term.Handover, to wait) (goOn bool) {
	if left == nil || k.bound < 0 {
		return true
	}
	began := time.Now()
	writes := make([]consistency.Write, len(left.Writes))
	awaited := make([]unseen, len(left.Writes))
	for i := range left.Writes {
		writes[i] = written(&left.Writes[i])
		writes[i].Answered = began
		awaited[i] = unseen{Write: left.Writes[i], resolved: true, instead: writes[i : i+1]}
	}
	expired, doubts, goOn := k.await(take, work, to, awaited, writes)
	if !goOn {
		return false
	}
	if left.Unknown > 0 {
		doubts = errors.Join(doubts, fmt.Errorf("%d more writes are not covered: their effect is unknown, or the Lease had no room for them", left.Unknown))
	}
	if expired {
		doubts = errors.Join(k.missingOf(to.result), doubts)
		k.logger(work).Warn("took over before the previous leader's writes were visible in the cache", "leader", left.Holder, "err", doubts)
	}
	if k.hooks.Controller.TookOver != nil {
		k.hooks.Controller.TookOver(hook.Takeover{Controller: k.name, Took: time.Since(began), Writes: len(left.Writes), Expired: expired, Doubts: doubts})
	}
	return true
}

func (k *gaps) inherit(writes []ledger.Write) {
	p := &past{}
	for _, w := range writes {
		p.awaited = append(p.awaited, unseen{Write: w})
	}
	k.inherited.former.Store(p)
}

func (k *gaps) awaitFormer(take, work context.Context) (goOn bool) {
	former := k.inherited.former.Load()
	if former == nil || len(former.awaited) == 0 || k.bound < 0 {
		return true
	}
	defer k.inherited.waits.Store(nil)
	expired, unknown, goOn := k.await(take, work, wait{&k.inherited.former, k.showWait}, former.awaited, nil)
	if !goOn {
		return false // a later term waits again
	}
	missing := k.missingOf(&k.inherited.former)
	if missing != nil {
		k.logger(work).Warn("started before the removed controller's writes were visible in the cache", "missing", missing)
	}
	k.reportAwaited(hook.Awaited{Expired: expired, Doubts: errors.Join(missing, unknown)})
	return true
}

// await returns when the caches show the awaited writes, when Options.ReadYourWrites is over, or
// when the controller stops. Unless it stops, to.result gets the given-up writes. writes may be
// hashed, so await locates their objects.
func (k *gaps) await(take, work context.Context, to wait, awaited []unseen, writes []consistency.Write) (expired bool, doubts error, goOn bool) {
	p := &past{awaited: awaited}
	var aside []unseen
	bound := time.After(k.bound)
	for checks := 0; ; checks++ {
		k.declared.Locate(writes)
		if k.declared.Hosts() > 1 {
			aside = append(aside, k.setAside(p)...)
		}
		last, doubts := k.outstanding(work, p)
		if last == nil {
			to.result.Store(&past{givenUp: append(aside, p.unsure...)})
			return false, doubts, true
		}
		to.show(last.String())
		shown := make(chan struct{}, 1)
		unnotify := last.Notify(func() { shown <- struct{}{} }) // called once
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
			to.result.Store(&past{givenUp: append(aside, p.awaited...)})
		}
		if expired || !goOn {
			return expired, doubts, goOn
		}
	}
}

// setAside leaves out writes to a cluster that cannot be reached: the others go on, and no read
// answers from its informers before they have synced.
func (k *gaps) setAside(p *past) (aside []unseen) {
	p.awaited = slices.DeleteFunc(slices.Clone(p.awaited), func(w unseen) bool {
		missing, _ := k.gapOf(&w)
		unread := missing != nil && missing.Unread()
		if unread {
			aside = append(aside, w)
		}
		return unread
	})
	return aside
}

func (k *gaps) missingOf(before *atomic.Pointer[past]) error {
	p := before.Load()
	if p == nil || len(p.givenUp) == 0 {
		return nil
	}
	return k.stillMissing(&past{givenUp: slices.Clone(p.givenUp)}) // a copy, for concurrent calls
}

func (k *gaps) inheritedMissing() error {
	return errors.Join(k.missingOf(&k.inherited.leader), k.missingOf(&k.inherited.former))
}

func (k *visibility[K]) unshown() []ledger.Write {
	var pasts []*past
	for _, r := range k.records.all() {
		if r.past != nil {
			pasts = append(pasts, r.past)
		}
	}
	if former := k.inherited.former.Load(); former != nil {
		pasts = append(pasts, former)
	}
	return k.unshownOf(pasts)
}

func (k *gaps) unshownOf(pasts []*past) (writes []ledger.Write) {
	for _, p := range pasts {
		all := p.awaited
		if p.answers != nil {
			all, _ = awaited(p.answers)
		}
		for _, w := range slices.Concat(all, p.givenUp) {
			if w.event != nil { // not a write
				continue
			}
			if missing, unknown := k.gapOf(&w); missing != nil || unknown != nil {
				writes = append(writes, w.Write)
			}
		}
	}
	return writes
}
