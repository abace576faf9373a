// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

func (i *informer) noticeSync(ctx context.Context) {
	select {
	case <-i.synced():
	case <-ctx.Done():
		return
	}
	if i.setSynced() {
		i.env.ring()
		i.env.recovered() // before Look wakes keys: a key whose Reconcile has begun would run again
		i.view.Look()
	}
}

func (i *informer) setSynced() (news bool) {
	i.env.mu.Lock()
	defer i.env.mu.Unlock()
	if i.phase != hook.Syncing {
		return false
	}
	i.phase, i.since = hook.Synced, time.Now()
	return true
}

// Report is called after each request, with how the informer follows the API server.
func (i *informer) Report(phase hook.Phase, err error) {
	if phase == hook.Syncing && i.HasSynced() {
		if r := i.restoring.Load(); r != nil { // Restored was sent, for all informers
			i.set(hook.Failing, r.why)
			return
		}
		phase = hook.Synced
	}
	news := i.set(phase, err)
	if troubled := i.troubled.Swap(err != nil); news && (err != nil || troubled) {
		state := i.state()
		i.env.hook.Send(&state)
	}
}

// set reports whether an InformerState must be sent: trouble begins, changes or ends.
func (i *informer) set(phase hook.Phase, err error) (news bool) {
	news, changed := i.change(phase, err)
	if changed {
		i.env.ring()
		if phase == hook.Synced {
			i.env.recovered() // before Look, as above
		}
		i.view.Look()
	}
	return news
}

func (i *informer) change(phase hook.Phase, err error) (news, changed bool) {
	i.env.mu.Lock()
	defer i.env.mu.Unlock()
	if phase == i.phase && (err == nil || sameReason(err, i.err)) {
		return false, false
	}
	news = err != nil || i.err != nil
	i.phase, i.err, i.since = phase, err, time.Now()
	return news, true
}

// sameReason compares errors without digits, which are ports, streams and times.
func sameReason(a, b error) bool {
	words := func(err error) string {
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, err.Error())
	}
	return a != nil && b != nil && words(a) == words(b)
}

func (i *informer) at() (phase hook.Phase, since time.Time, why error) {
	phase, since, why = i.last()
	switch {
	case i.foreign && i.shared.IsStopped():
		phase = hook.Stopped
	case i.foreign && !i.HasSynced():
		phase = hook.Syncing
	case phase == hook.Syncing && i.HasSynced():
		phase = hook.Synced // noticeSync is about to set it
	case why != nil && i.outlived.Load() != nil && !i.hasOutlived():
		phase, why = hook.Synced, nil
	}
	return phase, since, why
}

func (i *informer) last() (phase hook.Phase, since time.Time, why error) {
	i.env.mu.Lock()
	defer i.env.mu.Unlock()
	return i.phase, i.since, i.err
}
