// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
)

// unshown returns the writes of the last Reconcile of each key that the caches do not show yet.
func (k *consistency[K]) unshown() []ledger.Write {
	var writes []ledger.Write
	var pasts []*past
	for _, r := range k.records.all() {
		if r.past != nil {
			pasts = append(pasts, r.past)
		}
	}
	k.mu.Lock()
	if k.former != nil { // it did not get as far as to wait for them
		pasts = append(pasts, k.former)
	}
	k.mu.Unlock()
	for _, p := range pasts {
		all := p.awaited
		if p.answers != nil {
			all, _ = awaited(p.answers)
		}
		for _, w := range slices.Concat(all, p.givenUp) {
			if missing, unknown := k.gapOf(&w); missing != nil || unknown != nil {
				writes = append(writes, w.Write)
			}
		}
	}
	return writes
}

// inherit makes awaitFormer wait for writes.
func (k *consistency[K]) inherit(writes []ledger.Write) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.former = &past{}
	for _, w := range writes {
		k.former.awaited = append(k.former.awaited, unseen{Write: w})
	}
}

// awaitFormer waits for what Inherit was given. It reports false if the controller is to stop
// meanwhile. After the bound, Stale names what is missing.
func (k *consistency[K]) awaitFormer(take, work context.Context) (goOn bool) {
	k.mu.Lock()
	former := k.former
	k.mu.Unlock()
	if former == nil || len(former.awaited) == 0 || k.bound < 0 {
		return true
	}
	p := &past{awaited: former.awaited}
	expired, unknown, goOn := k.await(take, work, func() (gap, error) { return k.outstanding(work, p) })
	if !goOn {
		return false // a later term waits again
	}
	left := &past{givenUp: p.unsure}
	if expired {
		left.givenUp = slices.Clone(p.awaited)
	}
	missing := k.stillMissing(left)
	k.mu.Lock()
	k.former = left
	k.mu.Unlock()
	if missing != nil {
		k.logger(work).Warn("started before the writes of the controller of this name that was removed were visible in the cache", "missing", missing)
	}
	if k.hooks.Awaited != nil {
		k.tellAwaited(hook.Awaited{Expired: expired, Doubts: errors.Join(missing, unknown)})
	}
	return true
}

// formerMissing names what the controller that was removed wrote and the caches do not show.
func (k *consistency[K]) formerMissing() error {
	k.mu.Lock()
	p := k.former
	k.mu.Unlock()
	if p == nil || len(p.givenUp) == 0 {
		return nil
	}
	return k.stillMissing(&past{givenUp: slices.Clone(p.givenUp)}) // a copy: others ask at the same time
}
