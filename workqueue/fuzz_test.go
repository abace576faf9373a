// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var trials = flag.Int("trials", 100, "random inputs of TestModel")

// FuzzModel runs random operations on the queue and on the model. It compares each delivery, each
// result and the whole state. It covers W1 to W5, W8, W9, W11, and the order among classes and
// tenants.
func FuzzModel(f *testing.F) {
	f.Add([]byte("plain: add, add, take, settle"))
	f.Add([]byte{0x3f, 0, 1, 0, 2, 2, 0, 3, 0, 16, 5, 1, 1, 2, 2, 3, 4, 9, 11, 40, 2, 2, 2, 2})
	f.Add([]byte{0xff, 0, 1, 0, 9, 2, 0, 4, 0, 0, 1, 16, 200, 2, 0, 6, 3, 9, 1, 2, 0, 7, 0, 17, 0, 2, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 400 {
			t.Skip()
		}
		synctest.Test(t, func(t *testing.T) { newTrial(t, &data).run() })
	})
}

// TestModel runs FuzzModel with long random inputs, the same in each run.
func TestModel(t *testing.T) {
	for seed := range uint64(*trials) {
		r := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 100+r.IntN(600))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		synctest.Test(t, func(t *testing.T) { newTrial(t, &data).run() })
	}
}

// trial is one run of FuzzModel.
type trial struct {
	t     *testing.T
	data  *[]byte
	q     *Queue[int]
	m     *model
	items []Item[int] // held
	stale []Item[int] // settled
	drops int
	whose bool // which adds are own: those with a reason, or those without
	log   []string
}

func (tr *trial) byte() int {
	if len(*tr.data) == 0 {
		return 0
	}
	b := (*tr.data)[0]
	*tr.data = (*tr.data)[1:]
	return int(b)
}

type linear struct{}

func (linear) Delay(n int) time.Duration { return time.Duration(n-1) * 3 }

func newTrial(t *testing.T, data *[]byte) *trial {
	tr := &trial{t: t, data: data}
	tr.m = &model{keys: map[int]*modelKey{}, tenant: func(int) string { return "" }, weight: func(string) float64 { return 1 }}
	mode := tr.byte()
	o := Options[int]{Name: "fuzz", Backoff: linear{}, Reasons: 2}
	shares := []ClassWeight{{Normal, 1}}
	if mode&1 != 0 {
		o.Classes = []ClassWeight{{Interactive, 8}, {Background, 1}, {Normal, 2.5}}
		shares = []ClassWeight{{Background, 0.25}, {Background, 1}, {Normal, 0.625}, {Normal, 2.5}, {Interactive, 2}, {Interactive, 8}}
		tr.m.split = true
	}
	if mode&2 != 0 {
		o.Tenant = func(k int) string { return fmt.Sprint(k % 3) }
		tr.m.tenant = o.Tenant
	}
	if mode&2 != 0 && mode&4 != 0 {
		o.TenantWeight = func(name string) float64 { return map[string]float64{"0": 1, "1": 3, "2": 0.7}[name] }
		tr.m.weight = o.TenantWeight
	}
	if mode&8 != 0 {
		o.MinInterval, o.MaxWait = 4, 10
		tr.m.calm, tr.m.wait = 4, 10
	}
	if mode&128 != 0 {
		o.Reasons = 1
	}
	if mode&16 != 0 {
		o.Reasons = -1
	}
	if mode&32 != 0 {
		tr.m.own = func(reason string) bool { return tr.whose == (reason != "") }
		if mode&64 != 0 {
			tr.m.within = 3
		}
		o.Own = func(_ int, _ uint64, r Reason) (bool, time.Duration) { return tr.m.own(r.Event), tr.m.within }
	}
	o.Hook = hook.On(func(d *hook.QueueDropped) { tr.drops += d.Keys })
	for i, s := range shares {
		tr.m.classes = append(tr.m.classes, modelClass{class: s.Class, weight: s.Weight, flows: map[string]*modelFlow{}})
		if s.Class <= Normal {
			tr.m.normal = i
		}
		tr.m.urgent = i
	}
	tr.m.reasons = o.Reasons
	tr.q = newQueue(t, o)
	return tr
}

// class returns the index in the model's classes for adds with class c.
func (tr *trial) class(c Class) int {
	for i := len(tr.m.classes) - 1; i > 0; i-- {
		if tr.m.classes[i].class <= c {
			return i
		}
	}
	return 0
}

func (tr *trial) run() {
	for step := 0; len(*tr.data) > 0; step++ {
		op, arg := tr.byte(), tr.byte()
		key, class := arg&7, Class(arg>>3%3)-1
		how := AddOptions{Class: class}
		if arg&0x80 != 0 {
			how.Reason.Event = fmt.Sprint("r", step/16)
		}
		tr.log = append(tr.log, fmt.Sprintf("%d(%d)", op%24, arg))
		switch op % 24 {
		case 0, 1, 2:
			tr.add(key, how)
		case 3:
			how.After = time.Duration(arg>>4) + 1
			tr.q.AddWith(key, how)
			tr.m.addAfter(key, tr.class(class), how.Reason.Event, how.After)
		case 4:
			tr.addAll(key, how)
		case 5, 6, 7:
			tr.take()
		case 8, 9, 10, 11, 12, 13:
			tr.settle(op%24-8, arg, class)
		case 14:
			tr.whose = !tr.whose
		case 15:
			tr.same("Wake", tr.q.Wake(key), tr.m.wake(key))
		case 16:
			tr.q.PauseKey(key)
			tr.m.pause(key)
		case 17:
			tr.q.ResumeKey(key)
			tr.m.resume(key)
		case 18:
			tr.pauseAll(arg)
		case 19:
			tr.q.RequeueNow(key, how.Reason)
			tr.m.requeue(key, cmp.Or(how.Reason.Event, EventRequeueNow))
		case 20:
			tr.rateLimited(key, arg)
		case 21, 22:
			d := time.Duration(arg % 16)
			time.Sleep(d)
			tr.m.advance(d)
		case 23:
			tr.rare(key, arg)
		}
		tr.compare()
	}
	tr.finish()
}

func (tr *trial) add(key int, how AddOptions) {
	tr.q.AddWith(key, how)
	if !tr.dropped(key, how.Reason.Event) {
		tr.m.add(key, tr.class(how.Class), how.Reason.Event)
	}
}

// dropped reports whether an add of a key in backoff is its own.
func (tr *trial) dropped(key int, reason string) bool {
	k := tr.m.keys[key]
	if tr.m.own == nil || k == nil || !k.inBackoff() || !tr.m.own(reason) {
		return false
	}
	tr.m.hasten(k, reason)
	return true
}

func (tr *trial) addAll(key int, how AddOptions) {
	keys := []int{key, (key + 3) & 7, key}
	tr.q.AddAll(keys, how)
	var last []int // adds that need a call of Own come last
	for _, k := range keys {
		if m := tr.m.keys[k]; tr.m.own != nil && m != nil && m.inBackoff() {
			last = append(last, k)
			continue
		}
		tr.m.add(k, tr.class(how.Class), how.Reason.Event)
	}
	for _, k := range last {
		if !tr.dropped(k, how.Reason.Event) {
			tr.m.add(k, tr.class(how.Class), how.Reason.Event)
		}
	}
}

func (tr *trial) take() {
	want := tr.m.take()
	if want == nil {
		_, ok := tryGet(tr.q)
		tr.same("tryGet", ok, false)
		return
	}
	item, ok := tr.q.Get(ctx)
	if !ok {
		tr.t.Fatalf("%v: Get returned false, want %d", tr.log, want.key)
	}
	_, dropped := item.Reasons()
	got := fmt.Sprint(item.Key(), item.Attempt(), item.Class(), item.Delivery(), item.Queued().Sub(tr.q.core.start), texts(reasonsOf(item)), dropped)
	exp := fmt.Sprint(want.key, want.attempts+1, tr.m.classes[want.class].class, want.delivery, want.queued, orAdded(tr.q, want.taken.texts()), want.taken.dropped)
	tr.same("Get", got, exp)
	tr.items = append(tr.items, item)
}

func (tr *trial) settle(what, arg int, class Class) {
	if len(tr.items) == 0 {
		return
	}
	n := arg % len(tr.items)
	item := tr.items[n]
	tr.items, tr.stale = slices.Delete(tr.items, n, n+1), append(tr.stale, item)
	k, d, next, err := tr.m.keys[item.Key()], time.Duration(arg>>4), -1, error(nil)
	if arg&4 != 0 {
		item, next = item.InClass(class), tr.class(class)
	}
	switch what {
	case 0:
		outcome := hook.QueueDone
		if arg&2 != 0 {
			outcome, err = hook.QueueGiveUp, item.GiveUp(nil)
		} else {
			err = item.Done()
		}
		tr.m.settle(k, outcome, 0, next, false)
	case 1:
		k.why = ""
		d, err = item.Retry(nil)
		tr.same("Retry", d, tr.m.settle(k, hook.QueueRetry, linear{}.Delay(item.Attempt()), next, false))
	case 2:
		how, want := RetryOptions{NotBefore: d, Event: []string{"", "x"}[arg>>1&1]}, max(d, linear{}.Delay(item.Attempt()))
		if arg&1 != 0 && d > 0 {
			how.NotBefore, how.Exactly, want = 100, d, d
		}
		k.why = how.Event
		d, err = item.RetryWith(nil, how)
		tr.same("RetryWith", d, tr.m.settle(k, hook.QueueRetry, want, next, false))
	case 3:
		err = item.After(d)
		tr.m.settle(k, hook.QueueAfter, d, next, false)
	case 4:
		err = item.Park("p", d)
		tr.m.settle(k, hook.QueuePark, d, next, false)
	case 5:
		err = item.Release()
		tr.m.settle(k, hook.QueueRelease, 0, next, false)
	}
	tr.same("settle", err, error(nil))
}

func (tr *trial) pauseAll(arg int) {
	if arg&1 != 0 {
		tr.q.Pause()
	} else {
		tr.q.Resume()
	}
	if !tr.m.shut {
		tr.m.pausedAll = arg&1 != 0
	}
}

func (tr *trial) rateLimited(key, arg int) {
	r := tr.q.Interface()
	if arg&0x40 == 0 {
		r.AddRateLimited(key)
		if n, class := tr.m.fail(key); n > 1 {
			tr.m.addAfter(key, class, "", linear{}.Delay(n))
		} else if n == 1 {
			tr.add2(key, class)
		}
		return
	}
	if k := tr.m.keys[key]; k != nil && k.state == Held {
		tr.items = slices.DeleteFunc(tr.items, func(i Item[int]) bool { return i.Key() == key })
		tr.m.settle(k, hook.QueueDone, 0, -1, true)
	}
	r.Done(key)
}

// add2 is the add that AddRateLimited made, without a delay.
func (tr *trial) add2(key, class int) {
	if !tr.dropped(key, "") {
		tr.m.add(key, class, "")
	}
}

func (tr *trial) rare(key, arg int) {
	switch {
	case arg > 250:
		tr.q.ShutDown()
		tr.m.shutDown()
	case arg > 200:
		tr.q.Forget(key)
		tr.m.forget(key)
	default:
		for _, item := range tr.stale {
			_, err := item.Retry(nil)
			tr.same("settled twice", err, ErrNotHeld)
		}
	}
}

func (tr *trial) same(what string, got, want any) {
	tr.t.Helper()
	if got != want {
		tr.t.Fatalf("%v: %s: got %v, want %v", tr.log, what, got, want)
	}
}

// compare compares the whole state.
func (tr *trial) compare() {
	tr.t.Helper()
	s := tr.q.Snapshot()
	tr.same("Len", s.Len, tr.m.len())
	tr.same("number of keys", len(s.Keys), len(tr.m.keys))
	tr.same("dropped", tr.drops, tr.m.dropped)
	for _, got := range s.Keys {
		k := tr.m.keys[got.Key]
		if k == nil {
			tr.t.Fatalf("%v: unknown key %+v", tr.log, got)
		}
		var class Class
		if k.state == Ready || k.state == Held || k.state == Parked {
			class = tr.m.classes[k.class].class
		} else if k.coming >= 0 {
			class = tr.m.classes[k.coming].class
		} else if k.outside != far {
			class = tr.m.classes[k.outClass].class
		} else {
			class = tr.m.classes[tr.class(Normal)].class
		}
		want := KeyState[int]{Key: k.key, State: k.state, Class: class, Tenant: tr.m.tenant(k.key), Attempts: k.attempts,
			Paused: k.paused, Again: k.owed || len(k.adds) > 0, Since: tr.q.core.start.Add(k.since)}
		if k.due != far {
			want.Due = tr.q.core.start.Add(k.due)
		}
		if k.state == Parked {
			want.ParkReason = "p"
		}
		taken := k.taken.texts()
		if k.state == Held {
			taken = orAdded(tr.q, taken)
		}
		reasons := slices.Concat(taken, k.pending.texts(), k.later.texts())
		want.ReasonsDropped = k.taken.dropped + k.pending.dropped + k.later.dropped
		tr.same("reasons", fmt.Sprint(texts(got.Reasons)), fmt.Sprint(reasons))
		got.Reasons = nil
		tr.same("state", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
	}
}

// finish shuts down, takes and settles all keys, and checks that none is left.
func (tr *trial) finish() {
	tr.q.ShutDown()
	tr.m.shutDown()
	for len(tr.items) > 0 || tr.q.Len().Ready > 0 {
		tr.take()
		tr.settle(0, 0, Normal)
		tr.compare()
	}
	testkit.NoError(tr.t, tr.q.Drain(ctx))
	for key := range 8 {
		tr.q.Forget(key)
	}
	tr.same("entries", tr.q.core.entries.Len(), 0)
	tr.same("extras", tr.q.core.extras.Len(), 0)
	tr.same("reasons", tr.q.core.notes.slab.Len(), 0)
}

// orAdded replaces no reasons by the one that a delivery without a reason has.
func orAdded(q *Queue[int], taken []string) []string {
	if len(taken) == 0 && !q.core.notes.off {
		return []string{EventAdded + "+0"}
	}
	return taken
}
