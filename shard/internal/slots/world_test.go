// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Times of the simulation in virtual ms, as in package leaderelection.
const (
	leaseDuration = 15_000
	trustDuration = 13_500
	renewPeriod   = 2_000
	settleTime    = 60_000
	silentTime    = 3 * renewPeriod
	leaveTime     = 25_000
	// noticed is how long others need to notice a silent owner.
	noticed = silentTime + 4_000
	// calm is the time without faults after which a report must be complete, and at the end of a
	// run everything served.
	calm    = 30_000
	theEnd  = 180_000
	nameMax = 8
)

// simulation is a group of members that follow the rules, with an API server and faults, in virtual
// time. The judge checks P1, P2, P4, P5 and P6 after each event.
type simulation struct {
	random  *rand.Rand
	now     int64
	queue   events
	serial  int64
	without string // the safety check that the members leave out
	quiet   bool   // no more faults

	version uint64 // of the API server
	record  stored
	history []stored
	leases  map[string]*lease
	members map[string]*process

	data    uint64 // the newest write of an object
	changes int
	judge   judge
}

// stored is a record with its decoded form.
type stored struct {
	version uint64
	missing bool
	a       *Assignment
	err     error
}

type lease struct {
	version uint64
	changed int64 // when
	term    uint64
	holder  *process // nil: it is free
	shown   ID       // the Term that it shows
	stamped bool
	seen    uint64 // the version of the assignment that the holder saw
}

type event struct {
	at, serial int64
	do         func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = event{}
	*e = (*e)[:len(*e)-1]
	return last
}

func newSimulation(seed uint64, without string) *simulation {
	w := &simulation{
		random: rand.New(rand.NewPCG(seed, 16)), without: without, version: 100,
		leases: map[string]*lease{}, members: map[string]*process{},
	}
	w.judge.w = w
	w.record = stored{version: 1, missing: true, err: ErrInvalid}
	return w
}

// run makes that many changes of members and then lets the group settle. It returns the first
// violation.
func (w *simulation) run(changes int) error {
	for range 3 {
		w.start(w.anyName())
	}
	w.changes = 0
	w.after(0, w.nextChange(changes))
	w.after(calm, w.inspect)
	for len(w.queue) > 0 && w.judge.err == nil {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
		if w.quiet && w.now > w.judge.calmSince+theEnd {
			w.judge.atTheEnd()
			break
		}
	}
	return w.judge.err
}

func (w *simulation) after(ms int64, do func()) {
	w.serial++
	heap.Push(&w.queue, event{w.now + ms, w.serial, do})
}

func (w *simulation) upTo(n int64) int64 { return w.random.Int64N(n + 1) }
func (w *simulation) in(n int) bool      { return w.random.IntN(n) == 0 }
func (w *simulation) fault(n int) bool   { return !w.quiet && w.in(n) }
func (w *simulation) anyName() string    { return "m" + strconv.Itoa(w.random.IntN(nameMax)) }

// delay is how long a request, an answer or a watch event takes.
func (w *simulation) delay() int64 {
	if w.fault(50) {
		return w.upTo(20_000)
	}
	return 1 + w.upTo(100)
}

// nextChange makes one change and plans the next one.
func (w *simulation) nextChange(left int) func() {
	return func() {
		if left == 0 {
			w.calm()
			return
		}
		before := w.changes
		for w.changes == before {
			w.change()
		}
		if w.in(40) {
			w.after(w.upTo(5000), w.editByHand)
		}
		pause := w.upTo(16_000)
		if w.in(5) {
			pause = w.upTo(300)
		}
		w.after(pause, w.nextChange(left-1))
	}
}

func (w *simulation) change() {
	p, name := w.anyProcess(), w.anyName()
	switch n := w.random.IntN(12); {
	case n < 4:
		w.start(name)
	case n < 6 && p != nil && w.count() > 1:
		p.leave()
	case n < 7 && p != nil && w.count() > 1:
		p.crash()
	case n < 8 && p != nil: // a restart under the same name
		p.crash()
		w.start(p.name)
	case n < 11 && p != nil && p.asleep <= w.now:
		p.sleep(w.upTo(40_000))
	case n < 12 && p != nil && p.cut <= w.now: // no change of members
		p.cut = w.now + w.upTo(40_000)
		w.after(p.cut-w.now, func() { p.mended = w.now })
	}
}

// calm ends all faults.
func (w *simulation) calm() {
	w.quiet = true
	w.judge.calmSince = w.now
	for _, p := range w.all() {
		p.asleep, p.cut, p.awoke, p.mended = 0, 0, w.now, w.now
		p.step()
	}
	if w.count() == 0 {
		w.start("last")
	}
}

func (w *simulation) count() (n int) {
	for _, p := range w.members {
		if p.alive && !p.leaving {
			n++
		}
	}
	return n
}

func (w *simulation) anyProcess() *process {
	if p := w.members[w.anyName()]; p != nil && p.alive {
		return p
	}
	return nil
}

func (w *simulation) start(name string) {
	if p := w.members[name]; p != nil && p.alive {
		return
	}
	w.changes++
	p := &process{
		w: w, name: name, alive: true, rate: 0.95 + 0.1*w.random.Float64(), skew: w.upTo(3_600_000) - 1_800_000, seen: map[string]sight{},
		awoke: w.now, mended: w.now, warm: w.now + w.upTo(5000),
	}
	if w.leases[name] == nil {
		w.leases[name] = &lease{}
	}
	w.members[name] = p
	p.tick()
}

// store is the compare-and-swap of the API server.
func (w *simulation) store(n *Assignment) (stored, bool) {
	expected := w.record.version
	if w.record.missing {
		expected = 0
	}
	if n.Version() != expected && w.without != "compare" {
		return stored{}, false
	}
	w.version++
	a := *n
	a.version = w.version
	if w.in(200) {
		w.judge.roundTrip(n, &a)
	}
	w.judge.stores(&a)
	w.put(stored{version: w.version, a: &a})
	return w.record, true
}

// put stores a record and informs the watches.
func (w *simulation) put(r stored) {
	w.record = r
	w.history = append(w.history, r)
	if len(w.history) > 50 {
		w.history = slices.Clone(w.history[25:])
	}
	for _, p := range w.all() {
		if !w.fault(30) {
			w.after(w.delay(), func() { p.receive(r) })
		}
	}
}

// all returns the processes in a fixed order, so that a seed repeats a run.
func (w *simulation) all() []*process {
	all := make([]*process, 0, len(w.members))
	for i := range nameMax {
		if p := w.members["m"+strconv.Itoa(i)]; p != nil && p.alive {
			all = append(all, p)
		}
	}
	if p := w.members["last"]; p != nil {
		all = append(all, p)
	}
	return all
}

// editByHand deletes, damages, edits or puts back the stored assignment.
func (w *simulation) editByHand() {
	old := w.history[w.random.IntN(len(w.history)+1)%max(1, len(w.history)):]
	if w.quiet || len(old) == 0 || w.record.missing || w.record.a == nil || old[0].a == nil {
		return
	}
	w.version++
	r := stored{version: w.version}
	manager, text := "kubectl-edit", ""
	switch w.random.IntN(4) {
	case 0:
		r.missing = true
	case 1:
		text, manager = "{", Manager
	case 2: // another owner, in place
		text, _ = w.record.a.Encode()
		text, manager = strings.Replace(text, `{"o":0,`, `{"o":`+strconv.Itoa(len(w.record.a.members)-1)+`,`, 1+w.random.IntN(200)), Manager
		if text == mustEncode(w.record.a) {
			text = "{}"
		}
	case 3: // a copy from before
		text = mustEncode(old[0].a)
		if w.without == "manager" {
			manager = Manager
		}
	}
	r.a, r.err = Decode(settings, Record{Version: r.version, Missing: r.missing, Manager: manager, Text: text})
	if r.err == nil && w.without != "manager" {
		w.judge.fail("P1", "a record edited by hand is accepted")
	}
	w.judge.edited()
	w.put(r)
}

func mustEncode(a *Assignment) string {
	text, err := a.Encode()
	if err != nil {
		panic(err)
	}
	return text
}
