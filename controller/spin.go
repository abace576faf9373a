// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

type cause uint8

const (
	others   cause = iota // or unknown
	probably              // the key itself, as far as its reasons were recorded
	itself
)

func (c *Controller[K]) causeOf(item workqueue.Item[K], of *record[K]) (by cause, why *ledger.Write) {
	known, p := of.spin.known, of.past
	if !known && (p == nil || len(p.known()) == 0) {
		return others, nil
	}
	var all map[version]made
	if p != nil {
		all = p.versions()
	}
	reasons, dropped := item.Reasons()
	for i := range reasons {
		r := &reasons[i]
		if r.UID == "" && (r.Event == workqueue.EventAfter || r.Event == workqueue.EventWoken || r.Event == workqueue.EventParkExpired) {
			continue
		}
		by, write := c.authorOf(all, r)
		if by == someone {
			return others, nil
		}
		why = write
	}
	switch {
	case !known && why == nil: // its RequeueAfter was long enough
		return others, nil
	case dropped > 0:
		return probably, why
	default:
		return itself, why
	}
}

// slowDown puts off a key that spins, and reports whether it did.
func (c *Controller[K]) slowDown(item workqueue.Item[K], of *record[K], by cause) bool {
	if by != itself || !of.spin.known {
		return false
	}
	wait := of.spin.last + of.spin.pause() - c.now()
	if wait <= 0 {
		return false
	}
	c.delay(item, of, wait)
	return true
}

// delay puts off a key.
func (c *Controller[K]) delay(item workqueue.Item[K], of *record[K], wait time.Duration) {
	if of.past != nil {
		c.records.put(item.Key(), of.past) // before another worker can take the key
	}
	// A backoff, unlike an After, counts as busy for Quiet, because the key has events to see. It
	// is no failure.
	_, _ = item.RetryWith(nil, workqueue.RetryOptions{Exactly: wait, Event: workqueue.EventAfter, Uncounted: true})
}

func (c *Controller[K]) beginSpin(key K, log *slog.Logger, p *lastRun, by cause, why *ledger.Write) {
	if by == others {
		c.forgetSpin(key)
		return
	}
	spins, now := false, c.now()
	c.records.edit(key, func(r *record[K]) {
		if !r.spin.known || now-r.spin.last >= r.spin.pause()+spinGap {
			r.spin.row = 0
		}
		r.spin = spin{known: true, row: r.spin.row + 1, last: now, fields: r.spin.fields}
		if spins = r.spin.row == spinFree; spins {
			r.spin.fields = p.changing(why)
		}
	})
	if !spins || !c.repetition.Once("spin", fmt.Sprint(key)) {
		return
	}
	reason := "its RequeueAfter is shorter than " + spinGap.String()
	if why != nil {
		reason = "its own write: " + why.String()
		if !why.Made {
			reason = "perhaps " + reason
		}
	}
	if fields := c.records.look(key).spin.fields; fields != "" {
		log = log.With("fields", fields)
	}
	log.Warn("slowed down a key that keeps making itself due; write only what has changed, or return a longer RequeueAfter",
		"cause", reason, "reconciles", spinFree, "atMostEvery", spinMax.String())
}

func (c *Controller[K]) endSpin(key K, outcome hook.Outcome, after time.Duration, wrote bool) {
	soon := outcome == hook.RequeuedAfter && after < spinGap
	switch {
	case soon:
		now := c.now()
		c.records.edit(key, func(r *record[K]) {
			if !r.spin.known {
				r.spin = spin{known: true, last: now}
			}
		})
	case !wrote || outcome == hook.Interrupted || outcome == hook.Stale:
		c.forgetSpin(key)
	}
}

func (c *Controller[K]) forgetSpin(key K) {
	if c.records.look(key).spin.known {
		c.records.edit(key, func(r *record[K]) { r.spin = spin{} })
	}
}

// changing returns the fields that a write has changed since the key's write before it, or "".
func (p *lastRun) changing(w *ledger.Write) string {
	if p == nil || w == nil {
		return ""
	}
	after, ok := w.Object.(handler.Object)
	for _, before := range p.visible {
		if was, is := before.Object.(handler.Object); ok && is && before.UID == w.UID && before.ResourceVersion != w.ResourceVersion {
			return strings.Join(pathsOf(fieldsOf(was, after)), ", ")
		}
	}
	return ""
}
