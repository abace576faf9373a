// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/shard"
)

var (
	rounds    = flag.Int("rounds", 5, "the number of rounds, with one trouble each")
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "the seed of the troubles")
	duration  = flag.Duration("lease", 3*time.Second, "how long a Lease lasts")
	oneLeader = flag.Bool("one-leader", false, "one replica leads, without shards")
	pace      = flag.Duration("pace", 300*time.Millisecond, "the pause between two changes of a site")
	lag       = flag.Duration("lag", 25*time.Millisecond, "how much later each replica sees changes than the replica before")
	only      = flag.String("troubles", "", "the names of the troubles, with commas; by default all")
	bounds    = flag.Bool("bounds", false, "fail if a key waits longer than promised")
)

const (
	replicas = 5
	sites    = 40
	graceful = 300 * time.Millisecond // how much longer a key may wait because its slot moves
	takeover = 500 * time.Millisecond // the same after the Lease of a dead owner
)

// trouble is what happens to a replica.
type trouble struct {
	name, what string
	crash      bool // the replica cannot give up its slots
	late       int  // writes of a crashed replica that may be on their way
	edit       bool // of the stored assignment: all slots lose their owners
	do         func(ctx context.Context, f *fleet, m *member) (undo func() error, err error)
}

var troubles = []trouble{
	{"stop", "SIGTERM, then a new process", false, 0, false, func(_ context.Context, f *fleet, m *member) (func() error, error) {
		return func() error { return f.restart(m) }, m.cmd.Process.Signal(syscall.SIGTERM)
	}},
	{"join", "one more replica, then SIGTERM", false, 0, false, func(_ context.Context, f *fleet, _ *member) (func() error, error) {
		m, err := f.add("new")
		return func() error { return f.remove(m) }, err
	}},
	{"kill", "SIGKILL, then a new process", true, 0, false, func(_ context.Context, f *fleet, m *member) (func() error, error) {
		return func() error { return f.restart(m) }, m.cmd.Process.Kill()
	}},
	{"suspend", "SIGSTOP, and SIGCONT when others own its slots", true, workers, false, func(_ context.Context, _ *fleet, m *member) (func() error, error) {
		p := m.cmd.Process
		return func() error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
	}},
	{"cut", "no network until others own its slots", true, 0, false, func(_ context.Context, f *fleet, m *member) (func() error, error) {
		match := fault.Match{Config: m.cfg}
		rule := f.proxy.Add(fault.Rule{Match: match, Cut: true})
		f.proxy.Cut(match)
		return func() error { rule.Remove(); return nil }, nil
	}},
	{"edit", "a person edits the assignment", false, 0, true, func(ctx context.Context, f *fleet, _ *member) (func() error, error) {
		text := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"{}"}}}`, shard.SlotsAnnotation)
		return nothing, f.leases.Patch(types.MergePatchType).Namespace(namespace).Resource("leases").Name(lease).Body(text).Do(ctx).Error()
	}},
	{"delete", "a person deletes the group's Lease", false, 0, true, func(ctx context.Context, f *fleet, _ *member) (func() error, error) {
		return nothing, f.leases.Delete().Namespace(namespace).Resource("leases").Name(lease).Do(ctx).Error()
	}},
}

func nothing() error { return nil }

const workers = 2

// sample is one change of a site that was served.
type sample struct {
	site          string
	began, served time.Time
}

// result is what one round has measured.
type result struct {
	trouble *trouble
	gap     time.Duration // the longest wait of a key that moved, until others served all keys
	back    time.Duration // the same while the slots were divided again
	others  time.Duration // the longest wait of a key that did not move: work, and the machine
	more    time.Duration // how much of gap is due to the trouble
	late    time.Duration // how much of back is due to the moves
	moves   int
}

// TestRounds makes trouble for five replicas, and judges every write. See README.md. Because of
// -lag, an adopter must wait until it sees the former owner's writes.
func TestRounds(t *testing.T) {
	f, ctx := newFleet(t, orders{Lease: *duration, Workers: workers, OneLeader: *oneLeader})
	defer f.stop()
	t.Logf("seed %d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	for i := range replicas {
		m, err := f.add(string(rune('a' + i)))
		if err != nil {
			t.Fatal(err)
		}
		watches := fault.Match{Config: m.cfg, Verbs: []string{"watch"}, Resources: []string{"configmaps"}}
		f.proxy.Add(fault.Rule{Match: watches, Lag: time.Duration(i) * *lag})
	}
	for i := range sites {
		if err := f.keepChanging(ctx, fmt.Sprintf("site-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	var all []result
	names := strings.Split(*only, ",")
	possible := slices.DeleteFunc(slices.Clone(troubles), func(t trouble) bool {
		return *only != "" && !slices.Contains(names, t.name) || t.edit && *oneLeader
	})
	if len(possible) == 0 {
		t.Fatalf("-troubles=%s: the troubles have other names; see README.md", *only)
	}
	order := random.Perm(len(possible))
	for n := range *rounds {
		r, err := f.play(ctx, &possible[order[n%len(order)]], random)
		if err != nil {
			t.Errorf("round %d, %s: %v\n%s", n+1, r.trouble.name, err, f.state())
			break
		}
		if n%len(order) == len(order)-1 {
			order = random.Perm(len(possible))
		}
		all = append(all, r)
		t.Logf("round %d: %-8s longest wait %6.3f s, when it came back %6.3f s, of keys that did not move %6.3f s; %d slots moved",
			n+1, r.trouble.name, r.gap.Seconds(), r.back.Seconds(), r.others.Seconds(), r.moves)
		for _, story := range f.stories {
			t.Log(story)
		}
		f.stories = nil
	}
	if f.report(t, all); t.Failed() {
		t.Log(f.state())
	}
}

// keepChanging creates a site and changes it again and again, each time when it was served.
func (f *fleet) keepChanging(ctx context.Context, name string) error {
	if err := f.create(ctx, name); err != nil {
		return err
	}
	f.running.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			served, began := f.ask(name, n), time.Now()
			if err := f.change(ctx, name, n); err != nil {
				f.failed(fmt.Errorf("change %s: %w", name, err))
				return
			}
			select {
			case <-served:
			case <-ctx.Done():
				return
			}
			f.mu.Lock()
			f.served = append(f.served, sample{name, began, time.Now()})
			f.newsLocked()
			f.mu.Unlock()
			pause(ctx, *pace)
		}
	})
	return nil
}

// play makes one trouble.
func (f *fleet) play(ctx context.Context, trouble *trouble, random *rand.Rand) (r result, err error) {
	r.trouble = trouble
	// A machine that is busy with other tests may need minutes.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute+5*f.Lease)
	defer cancel()
	if err := f.settle(ctx); err != nil {
		return r, fmt.Errorf("before: %w", err)
	}
	m := f.victim(random)
	was := m.identity
	f.mu.Lock()
	moved, losses := f.judge.moves, len(f.judge.lost)
	if trouble.crash {
		f.judge.harm(was, trouble.late)
	}
	f.mu.Unlock()
	began := time.Now()
	undo, err := trouble.do(ctx, f, m)
	if err != nil {
		return r, err
	}
	switch {
	case trouble.edit:
		lost := func() bool { return len(f.judge.lost) > losses }
		err = errors.Join(f.wait(ctx, "the assignment to be lost", lost), f.settle(ctx))
	case len(f.members) > replicas:
		err = f.settle(ctx)
	default:
		err = errors.Join(f.left(ctx, was), f.allServed(ctx))
	}
	all := began
	r.gap = f.longest(began, true, f.bound(trouble))
	if trouble.edit { // all keys wait
		r.gap = max(r.gap, f.longest(began, false, f.bound(trouble)))
		all = time.Now()
	}
	began = time.Now()
	if err = errors.Join(err, undo(), f.settle(ctx)); err != nil {
		return r, err
	}
	r.back, r.others = f.longest(began, true, graceful), f.longest(all, false, time.Hour)
	r.more, r.late = r.gap-r.others, r.back-f.longest(began, false, time.Hour)
	if trouble.crash {
		r.more = r.gap // a key of the dead replica may be among the others
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r.moves = f.judge.moves - moved
	f.served = nil
	f.settleLocked()
	return r, nil
}

// victim returns a random replica, or the leader.
func (f *fleet) victim(random *rand.Rand) *member {
	m := f.members[random.IntN(replicas)]
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range f.members {
		if f.OneLeader && other.identity == f.leader.by {
			m = other
		}
	}
	return m
}

// left waits until others own all slots.
func (f *fleet) left(ctx context.Context, was string) error {
	return f.wait(ctx, "others to own the slots of "+was, func() bool {
		r := f.newestLocked()
		return !slices.ContainsFunc(r.owner[:], func(l life) bool { return l.by == was || l.by == "" })
	})
}

// settle waits until the slots are divided among all replicas, and all sites are served.
func (f *fleet) settle(ctx context.Context) error {
	return errors.Join(f.divided(ctx), f.allServed(ctx))
}

// divided starts ended replicas again. It waits until the slots are divided among all replicas.
func (f *fleet) divided(ctx context.Context) error {
	for divided := false; !divided; {
		for _, m := range f.members {
			if run.Closed(m.ended) { // it has ended itself: its work did not stop in time
				if err := f.start(m); err != nil {
					return err
				}
			}
		}
		err := f.wait(ctx, "the slots to be divided among all replicas", func() bool {
			divided = f.dividedLocked()
			return divided || slices.ContainsFunc(f.members, func(m *member) bool { return run.Closed(m.ended) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) dividedLocked() bool {
	r, count := f.newestLocked(), map[string]int{}
	for _, l := range r.owner {
		count[l.by]++
	}
	unowned := count[""]
	for _, m := range f.members {
		n, owns := count[m.identity]
		if !f.OneLeader && (!owns || n < len(r.owner)/len(f.members) || n > len(r.owner)/len(f.members)+1) {
			return false
		}
		delete(count, m.identity)
	}
	return unowned == 0 && len(count) == 0 && r.moving == 0 && r.version > 0
}

// allServed waits until each site is changed and served once more.
func (f *fleet) allServed(ctx context.Context) error {
	after := time.Now()
	return f.wait(ctx, "all sites to be served", func() bool {
		done := map[string]bool{}
		for _, s := range f.served {
			if s.began.After(after) {
				done[s.site] = true
			}
		}
		return len(done) == sites
	})
}

// longest returns the longest time that a site waited since a moment. It keeps the story, if that
// is longer than the bound.
func (f *fleet) longest(since time.Time, moved bool, bound time.Duration) (d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var worst sample
	for _, s := range f.served {
		if s.began.Before(since) {
			s.began = since
		}
		if took := s.served.Sub(s.began); took > d && f.movedLocked(s.site, s.began, s.served) == moved {
			d, worst = took, s
		}
	}
	if d > bound {
		f.stories = append(f.stories, f.storyLocked(worst.site, worst.began, worst.served))
	}
	return d
}

func (f *fleet) state() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, count := f.newestLocked(), map[life]int{}
	for _, l := range r.owner {
		count[l]++
	}
	s := fmt.Sprintf("version %d: %d members, %d slots move, slots by owner %v", r.version, r.members, r.moving, count)
	for _, m := range f.members {
		s += "\n" + m.identity
		if run.Closed(m.ended) {
			s += fmt.Sprintf(" has ended: %v", m.cmd.ProcessState)
		}
		s += "; the end of its log:\n" + m.log.String()
	}
	return s
}

// report prints the table, and reports what was broken.
func (f *fleet) report(t *testing.T, all []result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleLocked()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "trouble\trounds\tslots moved\tmedian wait\tlongest\tnot moved\tdifference\tbound\t\twhen back\t\twhat it was")
	for i := range troubles {
		f.row(t, w, &troubles[i], all)
	}
	w.Flush()
	j := f.judge
	t.Logf("the longest time from a change of a site until both parts have it\n%s", &out)
	t.Logf("%d writes judged: %d first writes after a graceful move, all with the former owner's writes seen unless noted below; "+
		"%d first writes after a crash without; %d writes of suspended replicas that arrived late; %d requests refused by the fence; %d Leases lost without a fault",
		j.judged, j.handovers, j.stale, j.late, f.refused, f.lost)
	for i, what := range j.broken {
		if i == 10 {
			t.Errorf("and %d more", len(j.broken)-i)
			break
		}
		t.Error(what)
	}
}

// bound returns how much longer a key may wait than a key that did not move, in the same round.
func (f *fleet) bound(trouble *trouble) time.Duration {
	switch {
	case trouble.crash:
		return f.Lease + takeover
	case trouble.edit:
		return f.Lease // not promised: all members stop, and then share the slots again
	}
	return graceful
}

func (f *fleet) row(t *testing.T, w io.Writer, trouble *trouble, all []result) {
	var gaps []time.Duration
	var moves int
	var more, back, others time.Duration // the worst of the rounds
	for _, r := range all {
		if r.trouble.name == trouble.name {
			gaps, moves = append(gaps, r.gap), moves+r.moves
			more, back, others = max(more, r.more), max(back, r.late), max(others, r.others)
		}
	}
	if gaps == nil {
		return
	}
	slices.Sort(gaps)
	verdict := func(d, bound time.Duration) string {
		if d <= bound {
			return "kept"
		}
		if *bounds {
			t.Errorf("%s: a key waited %s longer because of it; the bound is %s", trouble.name, d, bound)
		}
		return "SLOW"
	}
	bound := f.bound(trouble)
	fmt.Fprintf(w, "%s\t%d\t%d\t%.3f s\t%.3f s\t%.3f s\t%.3f s\t%.1f s\t%s\t%.3f s\t%s\t%s\n", trouble.name, len(gaps), moves,
		gaps[len(gaps)/2].Seconds(), gaps[len(gaps)-1].Seconds(), others.Seconds(),
		more.Seconds(), bound.Seconds(), verdict(more, bound), back.Seconds(), verdict(back, graceful), trouble.what)
}
