// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/term"
)

// takeOver waits until every informer that the controller watches or declared shows what was written under the term before, if that
// was released (L9). It says whether to go on: not, if the controller is to stop meanwhile. After Options.ReadYourWrites it waits no
// longer, and missing says, whenever it is asked, what is not shown yet.
func (k *consistency[K]) takeOver(take, work context.Context) (missing func() error, goOn bool) {
	missing = func() error { return nil }
	leading := term.Of(work)
	if leading == nil || leading.Inherited() == nil || k.bound < 0 {
		return missing, true
	}
	began, left := time.Now(), leading.Inherited()
	writes := make([]cache.Written, len(left.Writes))
	for i := range left.Writes {
		writes[i] = written(&left.Writes[i])
	}
	expired, doubts, goOn := k.await(take, work, func() (gap, error) {
		k.declared.Locate(writes)
		return k.behindPredecessor(left, writes)
	})
	if !goOn {
		return missing, false
	}
	if left.Unknown > 0 {
		doubts = errors.Join(doubts, fmt.Errorf("%d more writes cannot be waited for: their effect is not known, or the Lease had no room for them", left.Unknown))
	}
	if expired {
		missing = func() error {
			last, _ := k.behindPredecessor(left, writes) // several Reconciles may ask at once
			if last == nil {
				return nil
			}
			return fmt.Errorf("written under the term before, and not shown within %s: %s", k.bound, last)
		}
		doubts = errors.Join(missing(), doubts)
		k.logger(work).Warn("leading although it is not shown what was written under the term before", "leader", left.Holder, "err", doubts)
	}
	if k.hooks.TookOver != nil {
		k.hooks.TookOver(hook.TakenOver{Controller: k.name, Took: time.Since(began), Writes: len(left.Writes), Expired: expired, Doubts: doubts})
	}
	return missing, true
}

// await returns when behind returns no gap any more, when Options.ReadYourWrites is over, or when the
// controller is to stop. doubts are what cannot be waited for.
func (k *consistency[K]) await(take, work context.Context, behind func() (gap, error)) (expired bool, doubts error, goOn bool) {
	defer k.takingOver.Store(nil)
	bound := time.NewTimer(k.bound)
	defer bound.Stop()
	for checks := 0; ; checks++ {
		last, doubts := behind()
		if last == nil {
			return false, doubts, true
		}
		says := last.String()
		k.takingOver.Store(&says)
		shown := make(chan struct{}, 1)
		unnotify := last.Notify(func() { shown <- struct{}{} }) // once
		again := time.NewTimer(time.Second << min(checks, 10))
		goOn := true
		select {
		case <-shown:
		case <-again.C:
		case <-bound.C:
			expired = true
		case <-take.Done():
			goOn = false
		case <-work.Done():
			goOn = false
		}
		unnotify()
		again.Stop()
		if expired || !goOn {
			return expired, doubts, goOn
		}
	}
}

// behindPredecessor returns the last write of the term before that an informer does not show yet, and why some cannot be waited for.
func (k *consistency[K]) behindPredecessor(left *term.Handover, writes []cache.Written) (last gap, doubts error) {
	for i := range writes {
		missing, why := k.declared.Behind(writes[i])
		switch {
		case missing != nil:
			last = missing
		case why != nil:
			doubts = errors.Join(doubts, fmt.Errorf("%s: %w", &left.Writes[i], why))
		}
	}
	return last, doubts
}
