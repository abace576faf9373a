// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"errors"
	"slices"
	"strconv"
	"time"
)

// process is a member that follows the rules, as a driver would.
type process struct {
	w    *simulation
	name string
	rate float64 // of its monotonic clock
	skew int64   // of its wall clock

	alive, leaving bool
	leaveBy        int64
	asleep, awoke  int64 // until, since
	cut, mended    int64
	warm           int64

	id      ID // zero: it does not hold its Lease
	began   int64
	view    *View
	trust   int64 // until
	renewAt int64
	stamped bool
	busy    int64 // a write of the assignment is under way until then
	seen    map[string]sight
	proofs  []proof

	running  []*reconcile
	prepared [Slots]int64  // when the slot will be prepared
	shown    [Slots]uint64 // the ownership whose handovers the cache shows
	shownAt  [Slots]int64
	shows    uint64 // the newest write that its cache shows
	next     uint64
	wrote    uint64
	proposed uint64 // the version for which Propose had nothing to do
}

type sight struct {
	version uint64
	at      int64
}

type proof struct {
	id    ID
	since int64
}

type reconcile struct {
	slot  Slot
	epoch uint64
	until int64
}

// wall is its wall clock, up to an hour from another one.
func (p *process) wall() time.Time { return p.wallAt(p.w.now) }

func (p *process) wallAt(ms int64) time.Time { return time.UnixMilli(1e12 + ms + p.skew) }

func (p *process) connected() bool { return p.alive && p.cut <= p.w.now }
func (p *process) awake() bool     { return p.alive && p.asleep <= p.w.now }

func (p *process) trusted() bool {
	return p.alive && p.view != nil && (p.w.now < p.trust || p.w.without == "trust")
}

// serves reports whether it can work.
func (p *process) serves() bool { return p.awake() && p.connected() && p.trusted() }

// acts reports whether it has no fault.
func (p *process) acts() bool { return p.serves() && !p.leaving }

// open reports whether its fence is open for the slot, apart from its trust.
func (p *process) open(s Slot) bool {
	if p.view == nil || p.view.known == nil {
		return false
	}
	of := &p.view.known.slots[s]
	switch p.w.without {
	case "stop":
		return of.owner != none && p.view.known.members[of.owner].ID == p.id
	case "term":
		return of.owner != none && p.view.known.members[of.owner].Name == p.name && p.view.stopped[s] < of.epoch
	case "release":
		if of.ready && p.view.known.members[of.to].ID == p.id {
			return true
		}
	}
	return p.view.Owns(s, of.epoch)
}

func (p *process) sleep(ms int64) {
	p.w.changes++
	p.asleep = p.w.now + ms
	p.w.after(ms, func() { p.awoke = p.w.now })
}

func (p *process) crash() {
	p.w.changes++
	p.alive = false
}

func (p *process) leave() {
	if !p.leaving {
		p.w.changes++
		p.leaving, p.leaveBy = true, p.w.now+leaveTime
	}
}

func (p *process) tick() {
	if !p.alive {
		return
	}
	if p.asleep > p.w.now {
		p.w.after(p.asleep-p.w.now, p.tick)
		return
	}
	p.w.after(500+p.w.upTo(700), p.tick)
	p.step()
}

// step is one round of the driver.
func (p *process) step() {
	if p.view != nil && !p.trusted() {
		p.lose()
	}
	p.work()
	if !p.connected() {
		return
	}
	if p.trusted() {
		p.w.judge.serves(p)
	}
	p.shows, p.next = p.next, p.w.data
	p.observe()
	if p.view == nil {
		p.campaign()
		return
	}
	p.renew()
	if p.w.in(10) || p.w.quiet {
		p.receive(p.read())
	}
	p.expire()
	p.decide()
}

// read returns the record, or an older one from a server that lags.
func (p *process) read() stored {
	if n := len(p.w.history); n > 0 && p.w.fault(4) {
		return p.w.history[p.w.random.IntN(n)]
	}
	return p.w.record
}

func (p *process) receive(r stored) {
	if !p.awake() || !p.connected() || p.view == nil {
		return
	}
	if p.w.without == "order" {
		p.view.version = 0
	}
	before := p.view.version
	_ = p.view.see(r.version, r.a, r.err, p.wall())
	if p.view.version != before {
		p.w.judge.saw(p)
	}
}

// lose ends a session whose trust is over.
func (p *process) lose() {
	p.view, p.id, p.running, p.proofs = nil, ID{}, nil, nil
}

// campaign acquires its Lease by the rule of L1.
func (p *process) campaign() {
	if len(p.running) == 0 && !p.leaving {
		p.acquire(p.name, func(sent int64, term uint64) {
			l := p.w.leases[p.name]
			l.holder = p
			if !p.alive || p.view != nil {
				return
			}
			p.id, p.stamped, p.renewAt, p.proposed, p.busy = ID{p.name, term}, false, p.w.now, 0, 0
			p.trust, p.view, p.began = sent+p.trustFor(), NewView(p.id, settings, p.wall()), p.w.now
			p.prepared, p.shown = [Slots]int64{}, [Slots]uint64{}
		})
	}
	if p.leaving {
		p.alive = false
	}
}

func (p *process) trustFor() int64 { return int64(trustDuration / p.rate) }

// observe notes when it saw the Leases change.
func (p *process) observe() {
	for name, l := range p.w.leases {
		if p.seen[name].version != l.version {
			p.seen[name] = sight{l.version, p.w.now}
		}
	}
}

// acquire takes a Lease that is free, or whose record has not changed for its duration.
func (p *process) acquire(name string, won func(sent int64, term uint64)) {
	seen := p.seen[name]
	l := p.w.leases[name]
	if l.holder != nil && float64(p.w.now-seen.at)*p.rate < leaseDuration || l.version != seen.version {
		return
	}
	sent := p.w.now
	p.w.after(p.w.delay(), func() {
		if l.version != seen.version {
			return
		}
		p.w.version++
		l.version, l.changed, l.term, l.holder, l.stamped, l.seen = p.w.version, p.w.now, p.w.version, nil, false, 0
		won(sent, l.term)
	})
}

func (p *process) renew() {
	l := p.w.leases[p.name]
	if p.w.now < p.renewAt {
		return
	}
	p.renewAt = p.w.now + renewPeriod
	sent, id, saw := p.w.now, p.id, p.view.version
	p.w.after(p.w.delay(), func() {
		if l.holder != p || l.term != id.Term {
			return
		}
		p.w.version++
		l.version, l.changed, l.shown, l.stamped, l.seen = p.w.version, p.w.now, id, true, saw
		if p.w.fault(50) {
			return
		}
		p.w.after(p.w.delay(), func() {
			if p.id == id && p.w.now < p.trust && p.connected() {
				p.trust, p.stamped = max(p.trust, sent+p.trustFor()), true
			}
		})
	})
}

// expire acquires the Leases of silent members, and finds Leases that a later session holds.
func (p *process) expire() {
	a := p.view.known
	if a == nil || p.w.in(2) {
		return
	}
	for _, id := range append(slices.Clone(a.waiting), ids(a.members)...) {
		seen := p.seen[id.Name]
		if id.Name == p.name {
			continue
		}
		if p.w.without == "proof" && p.w.now-seen.at > silentTime {
			p.proofs = append(p.proofs, proof{ID{id.Name, id.Term + 1}, seen.at})
			continue
		}
		l := p.w.leases[id.Name]
		if l.stamped && l.shown.Term > id.Term {
			p.proofs = append(p.proofs, proof{l.shown, seen.at}) // it has restarted, and not joined
			continue
		}
		p.acquire(id.Name, func(_ int64, term uint64) {
			p.proofs = append(p.proofs, proof{ID{id.Name, term}, seen.at})
		})
	}
}

func ids(members []Member) (all []ID) {
	for _, m := range members {
		all = append(all, m.ID)
	}
	return all
}

// heartbeat is the observer's part of the report.
func (p *process) heartbeat(id ID) Heartbeat {
	seen, l := p.seen[id.Name], p.w.leases[id.Name]
	heartbeat := Heartbeat{Seen: l.seen}
	if p.w.now-seen.at > silentTime || l.holder == nil || l.term != id.Term {
		heartbeat.Silent = p.wallAt(seen.at)
	}
	return heartbeat
}

// work runs Reconciles of the owned slots.
func (p *process) work() {
	for _, r := range p.running {
		if p.w.in(2) || r.until <= p.w.now {
			p.write(r)
		}
	}
	p.running = slices.DeleteFunc(p.running, func(r *reconcile) bool { return r.until <= p.w.now })
	if p.view == nil || p.view.known == nil || !p.trusted() {
		return
	}
	for range 3 {
		s := Slot(p.w.random.IntN(Slots))
		of := &p.view.known.slots[s]
		if !p.open(s) || !p.handedOver(s) || slices.ContainsFunc(p.running, func(r *reconcile) bool { return r.slot == s }) {
			continue
		}
		r := &reconcile{s, of.epoch, p.w.now + p.w.upTo(3000)}
		p.w.judge.begins(p, r)
		p.running = append(p.running, r)
	}
}

// handedOver reports whether the cache shows what the former owners wrote.
func (p *process) handedOver(s Slot) bool {
	of := &p.view.known.slots[s]
	if p.shown[s] == of.epoch || p.w.without == "handover" {
		return true
	}
	if len(of.after) > 0 {
		for _, h := range p.view.known.Slot(s).After {
			if written, _ := strconv.ParseUint(h.Written, 10, 64); written > p.shows {
				return false
			}
		}
	}
	p.shown[s], p.shownAt[s] = of.epoch, p.w.now
	return true
}

// write sends a write through the fence.
func (p *process) write(r *reconcile) {
	if !p.trusted() || !p.open(r.slot) || p.view.known.slots[r.slot].epoch != r.epoch && p.w.without != "release" {
		p.w.judge.stats.refused++
		return
	}
	p.w.data++
	p.wrote = p.w.data
	p.w.judge.passes(p, r)
}

// decide makes at most one write of the assignment.
func (p *process) decide() {
	if p.busy > p.w.now {
		return
	}
	a, err := p.view.Assignment()
	switch {
	case p.view.version == 0:
		p.receive(p.read())
	case errors.Is(err, ErrInvalid) && p.w.in(3):
		missing := p.w.record.missing && p.w.record.version == p.view.version
		p.send(New(settings, Record{Version: p.view.version, Missing: missing}, p.wall()))
	case a != nil:
		p.transit(a)
	}
}

// transit applies all transitions that are due.
func (p *process) transit(a *Assignment) {
	n := a
	apply := func(next *Assignment, err error) {
		if err == nil {
			n = next
		}
	}
	t := p.view.Tasks()
	if t.List {
		apply(n.Listed(p.w.version, p.w.held()...))
	}
	if t.Acknowledge && len(p.running) == 0 {
		apply(n.Acknowledge(p.id))
	}
	for _, of := range p.proofs {
		apply(n.Dead(of.id, p.wallAt(of.since)))
	}
	p.proofs = nil
	if t.Join && p.stamped && p.warm <= p.w.now && !p.leaving && len(p.running) == 0 {
		apply(n.Join(Member{ID: p.id, Weight: 1}, p.wall()))
	}
	if ready := p.ready(t.Prepare); len(ready) > 0 {
		apply(n.Ready(p.id, p.wall(), ready...))
	}
	p.view.Stop(p.wall(), t.Drain...)
	n = p.goes(n)
	if p.leaving && p.leaveBy <= p.w.now {
		p.view.Stop(p.wall(), t.Owned...)
	}
	if idle := p.idle(p.view.Tasks().Release); len(idle) > 0 {
		apply(n.Release(p.view, strconv.FormatUint(p.wrote, 10), p.wall(), idle...))
	}
	if settled := p.settled(t.Owned); len(settled) > 0 {
		apply(n.Settle(p.id, settled...))
	}
	n = p.goes(n)
	if n != a || p.proposed != a.version {
		p.proposed = a.version
		n = n.Propose(p.wall())
	}
	if n != a {
		p.send(n)
	} else if p.leaving && t.Join && len(p.running) == 0 {
		p.exit()
	}
}

// goes leaves the group.
func (p *process) goes(n *Assignment) *Assignment {
	i := n.index(p.id)
	if !p.leaving || i == none {
		return n
	}
	if next, err := n.Leave(p.id); err == nil && (!n.members[i].Leaving || next.index(p.id) == none) {
		return next
	}
	return n
}

// held lists the Leases that show the Term of a member.
func (w *simulation) held() (all []ID) {
	for i := range nameMax {
		l := w.leases["m"+strconv.Itoa(i)]
		if l != nil && l.holder != nil && l.stamped && w.without != "waiting" {
			all = append(all, l.shown)
		}
	}
	return all
}

func (p *process) ready(slots []Slot) (ready []Slot) {
	for _, s := range slots {
		switch at := p.prepared[s]; {
		case at == 0:
			p.prepared[s] = p.w.now + p.w.upTo(1000)
		case at <= p.w.now:
			ready = append(ready, s)
		}
	}
	return ready
}

func (p *process) idle(slots []Slot) (idle []Slot) {
	for _, s := range slots {
		if !slices.ContainsFunc(p.running, func(r *reconcile) bool { return r.slot == s }) {
			idle = append(idle, s)
		}
	}
	return idle
}

func (p *process) settled(slots []Slot) (settled []Slot) {
	for _, s := range slots {
		of := &p.view.known.slots[s]
		if len(of.after) > 0 && p.handedOver(s) && p.shown[s] == of.epoch && p.w.now-p.shownAt[s] > settleTime {
			settled = append(settled, s)
		}
	}
	return settled
}

// send stores an assignment. The answer may be late or lost.
func (p *process) send(n *Assignment) {
	id := p.id
	p.busy = p.w.now + 10_000
	p.w.after(p.w.delay(), func() {
		r, ok := p.w.store(n)
		if !ok {
			p.w.judge.stats.conflicts++
			r = p.read()
		}
		if p.w.fault(20) {
			return
		}
		p.w.after(p.w.delay(), func() {
			if p.id == id && p.awake() && p.connected() {
				p.busy = 0
				p.receive(r)
				p.step()
			}
		})
	})
}

// exit releases the Lease when nothing of this session runs any more.
func (p *process) exit() {
	if l := p.w.leases[p.name]; l.holder == p && l.term == p.id.Term {
		p.w.version++
		l.version, l.changed, l.holder, l.stamped = p.w.version, p.w.now, nil, false
	}
	p.alive = false
}
