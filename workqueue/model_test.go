// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"fmt"
	"slices"
	"time"
)

// model is the queue written for simplicity, not speed: maps, slices and searches. It shares no
// code with the core. FuzzModel compares both.
type model struct {
	now        time.Duration
	keys       map[int]*modelKey
	classes    []modelClass // lowest first
	tenant     func(int) string
	weight     func(string) float64
	reasons    int
	calm, wait time.Duration
	own        func(reason string) bool // nil if Options.Own is nil
	within     time.Duration            // of own adds
	split      bool                     // each class has two entries in classes: returns, then adds
	normal     int
	urgent     int

	deliveries uint64
	seq        int
	top        float64
	pausedAll  bool
	shut       bool
	dropped    int
}

type modelKey struct {
	key         int
	state       State
	since       time.Duration
	delivery    uint64
	attempts    int
	adds        []string // immediate adds while it is held, unless they are owed
	owed        bool
	paused      bool
	why         string // RetryOptions.Event of the last Retry
	woken       bool
	backoff     bool
	givenUp     bool
	class       int // ready, held, parked
	coming      int // other states; -1: none
	outside     time.Duration
	outClass    int
	own         time.Duration
	calm        time.Duration
	latest      time.Duration
	due         time.Duration
	dueSeq      int
	taken       modelReasons
	pending     modelReasons
	later       modelReasons
	queued      time.Duration
	readyBefore int // order of the ready keys of a flow
}

type modelReasons struct {
	list    []modelReason
	dropped int
}

func (r modelReasons) texts() []string {
	var out []string
	for _, x := range r.list {
		out = append(out, fmt.Sprint(x.text, "+", x.repeats))
	}
	return out
}

type modelReason struct {
	text    string
	repeats int
}

type modelClass struct {
	class  Class
	weight float64
	tag    modelTag
	v      float64
	flows  map[string]*modelFlow
}

type modelFlow struct {
	tag modelTag
	seq int
}

type modelTag struct{ value, base, served float64 }

func (t *modelTag) serve(w float64) { t.served++; t.value = t.base + t.served/w }

const far = time.Duration(never)

func (m *model) get(key int) *modelKey {
	k := m.keys[key]
	if k == nil {
		k = &modelKey{key: key, since: m.now, coming: -1, outside: far, own: far, calm: far, latest: far, due: far}
		m.keys[key] = k
	}
	return k
}

// inBackoff reports whether k waits after Retry or is given up, paused or not.
func (k *modelKey) inBackoff() bool {
	return (k.backoff || k.givenUp) && (k.state == Waiting || k.state == Idle || k.state == Paused && !k.owed)
}

func (m *model) list(s State) []*modelKey {
	var out []*modelKey
	for _, k := range m.keys {
		if k.state == s {
			out = append(out, k)
		}
	}
	return out
}

func (m *model) turn(k *modelKey, s State) { k.state, k.since = s, m.now }

func (m *model) drop(k *modelKey) { delete(m.keys, k.key); m.dropped++ }

func (r *modelReasons) add(most int, text string) {
	if most < 0 || text == "" {
		return
	}
	if n := len(r.list); n > 0 && r.list[n-1].text == text {
		r.list[n-1].repeats++
		return
	}
	r.append(most, modelReason{text, 0})
}

func (r *modelReasons) append(most int, x modelReason) {
	r.list = append(r.list, x)
	if len(r.list) > most+1 {
		r.list = slices.Delete(r.list, 1, 2)
		r.dropped++
	}
}

func (r *modelReasons) addAll(most int, from *modelReasons) {
	for _, x := range from.list {
		r.append(most, x)
	}
	r.dropped += from.dropped
	*from = modelReasons{}
}

// sync records that k's due time may have changed.
func (m *model) sync(k *modelKey) {
	if due := min(k.outside, k.own, k.calm); due != k.due {
		m.seq++
		k.due, k.dueSeq = due, m.seq
	}
}

// advance lets time pass and processes due keys.
func (m *model) advance(d time.Duration) {
	end := m.now + d
	for {
		var next *modelKey
		for _, k := range m.keys {
			if k.due <= end && (next == nil || k.due < next.due || k.due == next.due && k.dueSeq < next.dueSeq) {
				next = k
			}
		}
		if next == nil {
			break
		}
		m.now = next.due
		m.fire(next)
		m.sync(next)
	}
	m.now = end
}

func (m *model) fire(k *modelKey) {
	switch k.due {
	case k.own:
		k.own = far
		switch {
		case k.state == Parked:
			k.pending.add(m.reasons, EventParkExpired)
			m.ready(k, k.class)
			return
		case k.backoff && k.why != "":
			k.pending.add(m.reasons, k.why)
		case k.backoff:
			k.pending.add(m.reasons, EventRetry)
		default:
			k.pending.add(m.reasons, EventAfter)
		}
		m.owe(k, k.coming)
	case k.outside:
		k.outside = far
		k.pending.addAll(m.reasons, &k.later)
		m.owe(k, k.outClass)
	default:
		k.calm, k.latest = far, far
		if k.state != Held {
			m.owe(k, k.coming)
		}
	}
}

func (m *model) owe(k *modelKey, class int) {
	switch k.state {
	case Ready:
		if class > k.class {
			m.removed(k)
			k.class = class
			m.joined(k)
		}
	case Held:
		k.owed, k.coming = true, max(k.coming, class)
	case Parked:
		k.class = max(k.class, class)
	case Paused:
		k.owed, k.coming = true, max(k.coming, class)
		k.own, k.calm, k.latest = far, far, far
	default:
		m.ready(k, max(k.coming, class))
	}
}

func (m *model) ready(k *modelKey, class int) {
	if class < 0 {
		class = m.normal
	}
	k.own, k.calm, k.latest = far, far, far
	k.adds, k.owed, k.woken, k.backoff = nil, false, false, false
	if k.givenUp {
		k.givenUp, k.attempts = false, 0
	}
	if k.paused {
		k.coming, k.owed = class, true
		m.turn(k, Paused)
		if m.shut {
			m.drop(k)
		}
		return
	}
	if m.shut && m.pausedAll {
		m.drop(k)
		return
	}
	k.class, k.coming = class, -1
	m.turn(k, Ready)
	m.joined(k)
}

// rest moves k to its next state when it has nothing to deliver.
func (m *model) rest(k *modelKey) {
	m.sync(k)
	switch {
	case k.paused:
		m.turn(k, Paused)
	case k.due != far:
		m.turn(k, Waiting)
	case k.attempts > 0:
		k.coming, k.backoff = -1, false
		k.pending = modelReasons{}
		m.turn(k, Idle)
	default:
		delete(m.keys, k.key)
		return
	}
	if m.shut && k.state != Idle {
		m.drop(k)
	}
}

func (m *model) len() Len {
	return Len{Ready: len(m.list(Ready)), Waiting: len(m.list(Waiting)), Held: len(m.list(Held)),
		Parked: len(m.list(Parked)), Paused: len(m.list(Paused)), AllPaused: m.pausedAll}
}

// Start-time fair queueing, by search.

func (m *model) readyIn(class int) []*modelKey {
	return slices.DeleteFunc(m.list(Ready), func(k *modelKey) bool { return k.class != class })
}

func (m *model) joined(k *modelKey) {
	m.seq++
	k.readyBefore = m.seq
	c := &m.classes[k.class]
	f := c.flows[m.tenant(k.key)]
	if f == nil {
		m.seq++
		f = &modelFlow{tag: modelTag{c.v, c.v, 0}, seq: m.seq}
		c.flows[m.tenant(k.key)] = f
	}
	if len(m.readyIn(k.class)) == 1 && c.tag.value < m.top { // k itself
		c.tag = modelTag{m.top, m.top, 0}
	}
}

// removed is called before k leaves its class.
func (m *model) removed(k *modelKey) {
	k.state = Idle
	if len(m.readyIn(k.class)) == 0 {
		m.classes[k.class].v = 0
		m.classes[k.class].flows = map[string]*modelFlow{}
	}
	if len(m.list(Ready)) == 0 {
		m.top = 0
		for i := range m.classes {
			m.classes[i].tag = modelTag{}
		}
	}
	k.state = Ready
}

func (m *model) take() *modelKey {
	class := -1
	for i := range m.classes {
		if len(m.readyIn(i)) > 0 && (class < 0 || m.classes[i].tag.value <= m.classes[class].tag.value) {
			class = i
		}
	}
	if class < 0 || m.pausedAll {
		return nil
	}
	c := &m.classes[class]
	var first *modelKey
	before := func(a, b *modelFlow) bool {
		return a.tag.value < b.tag.value || a.tag.value == b.tag.value && a.seq < b.seq
	}
	for _, k := range m.readyIn(class) {
		if first == nil {
			first = k
			continue
		}
		f, g := c.flows[m.tenant(k.key)], c.flows[m.tenant(first.key)]
		if f == g && k.readyBefore < first.readyBefore || f != g && before(f, g) {
			first = k
		}
	}
	f := c.flows[m.tenant(first.key)]
	for name, g := range c.flows {
		empty := !slices.ContainsFunc(m.readyIn(class), func(k *modelKey) bool { return m.tenant(k.key) == name })
		if empty && before(g, f) {
			delete(c.flows, name) // virtual time has passed it
		}
	}
	m.top = c.tag.value
	c.tag.serve(c.weight)
	c.v = f.tag.value
	f.tag.serve(m.weight(m.tenant(first.key)))
	m.seq++
	f.seq = m.seq
	m.removed(first)

	m.deliveries++
	first.delivery, first.queued, first.coming = m.deliveries, first.since, -1
	first.taken, first.pending = first.pending, modelReasons{}
	m.turn(first, Held)
	return first
}
