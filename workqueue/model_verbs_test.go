// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
)

// The verbs of the queue on the model, see model_test.go.

func (m *model) add(key, class int, reason string) {
	if m.shut {
		m.dropped++
		return
	}
	k := m.get(key)
	k.pending.add(m.reasons, reason)
	switch {
	case k.state == Held && (m.own != nil || m.calm > 0):
		k.adds = append(k.adds, reason)
		k.coming = max(k.coming, class)
		m.debounce(k)
	case m.calm > 0 && (k.state == Idle || k.state == Waiting):
		k.coming = max(k.coming, class)
		m.debounce(k)
		if k.state == Idle {
			m.turn(k, Waiting)
		}
	default:
		m.owe(k, class)
	}
	m.sync(k)
}

func (m *model) debounce(k *modelKey) {
	if m.calm == 0 {
		return
	}
	if k.latest == far {
		k.latest = m.now + m.wait
	}
	k.calm = min(m.now+m.calm, k.latest)
}

func (m *model) addAfter(key, class int, reason string, d time.Duration) {
	if m.shut {
		m.dropped++
		return
	}
	k := m.get(key)
	if k.outside == far {
		k.outClass = -1
	}
	k.outClass = max(k.outClass, class)
	k.outside = min(k.outside, m.now+min(d, far-1-m.now))
	k.later.add(m.reasons, reason)
	m.sync(k)
	if k.state == Idle {
		m.turn(k, Waiting)
	}
}

func (m *model) fail(key int) (attempts, class int) {
	if m.shut {
		m.dropped++
		return 0, m.normal
	}
	k := m.get(key)
	k.attempts++
	if k.state == Held {
		return k.attempts, m.returning(k.class)
	}
	return k.attempts, m.returning(m.normal)
}

// returning returns the class for a return of a key that was taken with class.
func (m *model) returning(class int) int {
	if m.split {
		return class / 2 * 2
	}
	return class
}

func (m *model) forget(key int) {
	if k := m.keys[key]; k != nil {
		k.attempts = 0
		if k.state == Idle {
			delete(m.keys, key)
		}
	}
}

func (m *model) wake(key int) bool {
	k := m.keys[key]
	switch {
	case k == nil:
		return false
	case k.state == Parked:
		k.pending.add(m.reasons, EventWoken)
		m.ready(k, k.class)
		m.sync(k)
		return true
	case k.state == Held:
		k.woken = true
		return true
	}
	return false
}

func (m *model) requeue(key int, why string) {
	if m.shut {
		m.dropped++
		return
	}
	k := m.get(key)
	k.pending.add(m.reasons, why)
	switch k.state {
	case Parked:
		m.ready(k, max(k.class, m.urgent))
	case Held:
		k.woken = true
		fallthrough
	default:
		m.owe(k, m.urgent)
	}
	m.sync(k)
}

func (m *model) pause(key int) {
	if m.shut {
		return
	}
	k := m.get(key)
	k.paused = true
	switch k.state {
	case Ready:
		m.removed(k)
		k.coming, k.owed = k.class, true
		m.turn(k, Paused)
	case Idle, Waiting:
		m.turn(k, Paused)
	}
}

func (m *model) resume(key int) {
	k := m.keys[key]
	if k == nil {
		return
	}
	k.paused = false
	if k.state != Paused {
		return
	}
	if k.owed {
		m.ready(k, k.coming)
	} else {
		m.rest(k)
	}
	m.sync(k)
}

// settle settles a key. next is the class of InClass, or -1.
func (m *model) settle(k *modelKey, outcome hook.QueueOutcome, d time.Duration, next int, keep bool) (delay time.Duration) {
	defer func() { m.sync(k); delay = d }()
	var soon string // the reason of an own add that is not dropped
	switch outcome {
	case hook.QueuePark, hook.QueueRelease:
		m.giveBack(k, outcome, d)
		return d
	case hook.QueueRetry, hook.QueueGiveUp:
		soon = m.dropOwn(k)
		k.attempts++
	default:
		if !keep {
			k.attempts = 0
		}
	}
	k.taken = modelReasons{}
	if soon != "" && (outcome == hook.QueueGiveUp || m.within < d) {
		d = m.within
	}
	timed := outcome == hook.QueueRetry || outcome == hook.QueueAfter || soon != ""
	if timed {
		if next < 0 {
			next = k.class
		}
		k.coming = max(k.coming, m.returning(next))
	}
	k.woken, k.backoff, k.givenUp = false, false, outcome == hook.QueueGiveUp
	switch {
	case k.owed || len(k.adds) > 0 && k.calm == far:
		m.ready(k, k.coming)
		return d
	case timed && d <= 0:
		event := string(outcome)
		if outcome == hook.QueueRetry && k.why != "" {
			event = k.why
		}
		k.pending.add(m.reasons, event)
		m.ready(k, k.coming)
		return d
	case timed:
		k.own = m.now + min(d, far-1-m.now)
		k.backoff = outcome == hook.QueueRetry
		k.pending.add(m.reasons, strings.TrimPrefix(soon, "add "))
	}
	k.adds = nil
	m.rest(k)
	return d
}

func (m *model) giveBack(k *modelKey, outcome hook.QueueOutcome, d time.Duration) {
	class := max(k.class, k.coming)
	k.taken.addAll(m.reasons, &k.pending)
	k.pending, k.taken = k.taken, modelReasons{}
	switch {
	case m.shut:
		m.drop(k)
	case outcome == hook.QueuePark && !k.woken:
		k.class, k.coming, k.adds, k.owed = class, -1, nil, false
		k.calm, k.latest = far, far
		if d > 0 {
			k.own = m.now + min(d, far-1-m.now)
		}
		m.turn(k, Parked)
	default:
		if outcome == hook.QueuePark {
			k.pending.add(m.reasons, EventWoken)
		}
		m.ready(k, class)
	}
}

// dropOwn drops the adds while k was held if all are its own and nothing else requests k. It
// returns "add " and the reason of one that delivers k soon, or "".
func (m *model) dropOwn(k *modelKey) (soon string) {
	if m.own == nil || k.owed || len(k.adds) == 0 {
		return ""
	}
	for _, reason := range k.adds {
		if !m.own(reason) {
			return ""
		}
	}
	if m.within > 0 {
		soon = "add " + k.adds[0]
	}
	k.adds, k.coming, k.pending = nil, -1, modelReasons{}
	k.calm, k.latest = far, far
	return soon
}

// hasten delivers a key in backoff soon, because of an own add.
func (m *model) hasten(k *modelKey, reason string) {
	if m.within == 0 || m.shut {
		return
	}
	k.pending.add(m.reasons, reason)
	k.own = min(k.own, m.now+m.within)
	if k.state == Idle {
		m.turn(k, Waiting)
	}
	m.sync(k)
}

func (m *model) shutDown() {
	if m.shut {
		return
	}
	m.shut = true
	for _, k := range m.keys {
		switch {
		case k.state == Waiting || k.state == Parked || k.state == Paused:
			m.drop(k)
		case k.state == Ready && m.pausedAll:
			m.removed(k)
			m.drop(k)
		case k.state != Idle:
			if k.outside != far {
				m.dropped++
			}
			k.outside, k.own, k.calm, k.latest = far, far, far, far
			k.later = modelReasons{}
			m.sync(k)
		}
	}
}
