// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import "time"

// instant is a moment by both clocks of a process, each counted from the same start. The monotonic
// clock may stand still while a machine sleeps; the wall clock may be set.
type instant struct{ mono, wall time.Duration }

// clock returns the current instant.
type clock func() instant

func newClock(wall func() time.Time) clock {
	began, from := time.Now(), wall()
	return func() instant { return instant{mono: time.Since(began), wall: wall().Sub(from)} }
}

func wallTime() time.Time { return time.Now().Round(0) }

// moment is when a request was sent.
type moment struct {
	time time.Time
	by   instant
}

func (c clock) moment() moment { return moment{time.Now(), c()} }

// state is what has become of a term:
//
//	held ──▶ closing ──▶ ended
//	  └──▶ lost ◀──┘
type state uint8

const (
	isHeld    state = iota
	isClosing       // its work is to stop, and no more may begin
	isLost          // against our will
	isEnded         // its work has stopped
)

// trust is the arithmetic of a term. It knows neither clock nor lock.
type trust struct {
	// Counted from when the last renewal that succeeded was sent: lasts until the term is lost,
	// fence until requests are refused, lease until a rival may lead.
	lasts, fence, lease time.Duration

	sent   instant // when the last renewal that succeeded was
	lostAt instant // when the process noticed
	state  state
}

func trustOf(o *Options, sent instant) trust {
	return trust{lasts: o.lasts(), fence: o.fence(), lease: o.LeaseDuration, sent: sent}
}

// since is how long ago the last renewal was sent: by the clock that says more.
func (t *trust) since(now instant) time.Duration {
	return max(now.mono-t.sent.mono, now.wall-t.sent.wall)
}

// lost reports whether the term is lost. A lost term stays lost, even if a clock is set back.
func (t *trust) lost(now instant) bool {
	if t.since(now) >= t.lasts {
		t.lose(now)
	}
	return t.state == isLost
}

// lose notes that somebody else may hold the Lease.
func (t *trust) lose(now instant) {
	if t.state == isHeld || t.state == isClosing {
		t.state, t.lostAt = isLost, now
	}
}

// over reports whether requests must be refused.
func (t *trust) over(now instant) bool { return t.since(now) >= t.fence }

// renew notes that a request sent then has renewed the Lease. It reports false if the term does not
// go on: it is lost, or the answer came too late.
func (t *trust) renew(sent, now instant) bool {
	if t.lost(now) || t.state != isHeld {
		return false
	}
	t.sent = sent
	return !t.lost(now)
}

// left is how long it is until the term is lost, or, if it is, until its trust is over.
func (t *trust) left(now instant) time.Duration {
	limit := t.lasts
	if t.state == isLost {
		limit = t.fence
	}
	return t.sent.mono + limit - now.mono
}

// patience is how long the work of a lost term may take from now on to stop: until the Lease
// expires. A process that was suspended may notice later than that. Its work has as long as it
// would have had.
func (t *trust) patience(now instant) time.Duration {
	return max(t.sent.mono+t.lease, t.lostAt.mono+t.lease-t.lasts) - now.mono
}
