// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
)

// witness records what the hooks of a group report.
type witness struct {
	mu                       sync.Mutex
	last                     hook.ShardGroup
	calls                    atomic.Int32
	acquired, released, lost int
}

func (w *witness) hooks() *hook.Hook {
	return hook.Join(
		hook.On(func(g *hook.ShardGroup) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.last = *g
			w.calls.Add(1)
		}),
		hook.On(func(s *hook.ShardSlots) {
			w.mu.Lock()
			defer w.mu.Unlock()
			*map[hook.ShardChange]*int{hook.ShardsAcquired: &w.acquired, hook.ShardsReleased: &w.released, hook.ShardsLost: &w.lost}[s.Change] += s.Slots
		}),
	)
}

func (w *witness) counts() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("acquired %d, released %d, lost %d", w.acquired, w.released, w.lost)
}

func (w *witness) group() hook.ShardGroup {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (f *fleet) seenBy(w *witness, name string) *replica {
	return f.start(name, shard.Options{Hook: w.hooks()})
}

// TestHooks_CountEverySlot: a slot that was acquired is released or lost once.
func TestHooks_CountEverySlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		var a, b witness
		first := f.seenBy(&a, "a")
		f.passUntil("one member", 3*time.Second, even(1, 256))
		second := f.seenBy(&b, "b")
		f.passUntil("two members", time.Minute, even(2, 256))
		f.pass(3 * time.Second) // a renewal shows that b has seen its slots
		testkit.Equal(t, a.counts(), "acquired 256, released 128, lost 0")
		if g := a.group(); g.Group != "web" || g.Members != 2 || g.Owned != 128 || g.Moving != 0 || g.Unserved != 0 || !g.UnservedSince.IsZero() || g.Epoch == 0 {
			t.Errorf("a observes %+v", g)
		}
		second.cut.Store(true)
		f.pass(30 * time.Second)
		testkit.Equal(t, b.counts(), "acquired 128, released 0, lost 128")
		testkit.Equal(t, b.group(), hook.ShardGroup{Group: "web"}, "b observes after the loss of its Lease")
		testkit.Equal(t, second.Status().Member, "")
		testkit.Len(t, second.Status().Owned, 0)
		first.stop()
		<-first.done
		if got := a.counts(); got != "acquired 384, released 384, lost 0" && got != "acquired 256, released 256, lost 0" {
			t.Errorf("a: %s", got)
		}
	})
}

// TestP2_TheAgeOfUnservedSlotsGrows: while nothing changes, the report stays, with the same
// beginning; each second, the hooks get it again.
func TestP2_TheAgeOfUnservedSlotsGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		var w witness
		f.seenBy(&w, "a")
		b := f.start("b", shard.Options{})
		f.passUntil("two members", time.Minute, even(2, 256))
		b.cut.Store(true)
		since := time.Now()
		f.pass(11 * time.Second)
		g := w.group()
		if g.Unserved != 128 || !strings.Contains(g.Reason, "does not renew its Lease") {
			t.Fatalf("%+v", g)
		}
		if early := since.Sub(g.UnservedSince); early < 0 || early > 3*time.Second {
			t.Errorf("unserved since %s before the cut, want since the last renewal", early)
		}
		calls := w.calls.Load()
		f.pass(2500 * time.Millisecond)
		testkit.Equal(t, w.group().UnservedSince, g.UnservedSince)
		testkit.AtLeast(t, w.calls.Load(), calls+2)
		f.pass(10 * time.Second)
		if g := w.group(); g.Unserved != 0 || !g.UnservedSince.IsZero() || g.Reason != "" {
			t.Errorf("%+v", g)
		}
	})
}

// TestHooks_MayPanic: the group works as without hooks.
func TestHooks_MayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		f.start("a", shard.Options{Hook: hook.Join(
			hook.On(func(*hook.ShardGroup) { panic("observed") }),
			hook.On(func(s *hook.ShardSlots) { panic(s.Change) }),
		)})
		f.start("b", shard.Options{})
		f.passUntil("two members", time.Minute, even(2, 256))
	})
}

// TestHooks_ABlockedOneIsNoSilence: the member keeps its Lease and slots, and serves them. If slots
// shall leave it, the others report them.
func TestHooks_ABlockedOneIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		free := make(chan struct{})
		defer f.end()
		defer close(free)
		var w witness
		a := f.start("a", shard.Options{Hook: hook.On(func(g *hook.ShardGroup) {
			if g.Owned == 256 {
				<-free
			}
		})})
		f.passUntil("one member", 3*time.Second, even(1, 256))
		f.seenBy(&w, "b")
		testkit.Equal(t, f.pass(time.Minute)["a"], 256)
		testkit.Len(t, a.Status().Owned, 256) // no lock is held
		if g := w.group(); g.Unserved == 0 || time.Since(g.UnservedSince) < 30*time.Second || !g.First {
			t.Errorf("b observes %+v", g)
		}
	})
}

// TestStatus_OneMemberIsFirst of those that are alive, with and without an assignment.
func TestStatus_OneMemberIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		_, stop := f.leader("old", &replica{})
		defer stop()
		time.Sleep(time.Second)
		for _, name := range []string{"a", "b", "c"} {
			f.start(name, shard.Options{})
		}
		firsts := func() (all []*replica) {
			for _, r := range f.all {
				if r.Status().First && !r.cut.Load() {
					all = append(all, r)
				}
			}
			return all
		}
		f.pass(10 * time.Second)
		if all := firsts(); len(all) != 1 || !strings.Contains(all[0].Status().Trouble, "old holds the group's Lease") {
			t.Fatalf("%d replicas are first while a leader works: %s", len(all), f.describe())
		}
		stop()
		f.passUntil("three members", time.Minute, even(3, 256))
		f.pass(3 * time.Second)
		all := firsts()
		if len(all) != 1 {
			t.Fatalf("%d members are first", len(all))
		}
		all[0].cut.Store(true)
		f.pass(12 * time.Second)
		testkit.Equal(t, len(firsts()), 1, "members are first while another one is silent")
	})
}

// TestStatus_AsJSON is what debug.Shards serves: ranges, and members with their Pods.
func TestStatus_AsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{})
		f.passUntil("one member", 3*time.Second, even(1, 256))
		b := f.start("b", shard.Options{})
		f.passUntil("two members", time.Minute, even(2, 256))
		b.stop()
		f.passUntil("one member again", time.Minute, even(1, 256))
		f.pass(time.Second)
		body, err := json.MarshalIndent(a.Group, "", "  ")
		testkit.NoError(t, err)
		for _, part := range []string{`"Owned": "0-255"`, `"Identity": "a"`} {
			testkit.Equal(t, strings.Count(string(body), part), 1, fmt.Sprintf("times %s", part))
		}
		if t.Failed() || testing.Verbose() {
			t.Logf("%s", body)
		}
	})
}

func TestSlots_String(t *testing.T) {
	for want, s := range map[string]shard.SlotList{"": nil, "7": {7}, "0-2": {0, 1, 2}, "0,2-3,5,255": {0, 2, 3, 5, 255}} {
		testkit.Equal(t, s.String(), want)
	}
}

// logged runs replicas whose log goes to a text.
func (f *fleet) logged(to *testkit.Buffer, name string, o shard.Options) *replica {
	log := slog.New(slog.NewTextHandler(to, nil))
	r := f.make(name, o)
	f.runIn(logr.NewContextWithSlogLogger(context.Background(), log), r)
	return r
}

// TestLog_SaysEachReasonOnce, and when it is over.
func TestLog_SaysEachReasonOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		var log testkit.Buffer
		_, stop := f.leader("old", &replica{})
		defer stop()
		time.Sleep(time.Second)
		f.logged(&log, "a", shard.Options{})
		f.pass(2 * time.Minute)
		stop()
		f.passUntil("one member", time.Minute, even(1, 256))
		b := f.start("b", shard.Options{})
		f.passUntil("two members", time.Minute, even(2, 256))
		f.pass(5 * time.Second)
		b.cut.Store(true)
		f.pass(2 * time.Minute)
		f.start("c", shard.Options{Partitioner: shard.ByNamespace()})
		f.pass(2 * time.Minute)
		for line, n := range map[string]int{
			`msg="waiting until another process releases the group's Lease"`: 1,
			`msg="slots are not served, so their keys wait"`:                 1,
			`count=128 slots=`:                 1,
			`does not renew its Lease`:         1,
			`msg="all slots are served again"`: 1,
			`msg="a replica has not renewed its Lease; its slots are given to others"`: 1,
		} {
			testkit.Equal(t, strings.Count(log.String(), line), n, fmt.Sprintf("times %s", line))
		}
		if t.Failed() || testing.Verbose() {
			t.Log(log.String())
		}
	})
}

// TestLog_FailingRequests are retried at once, and logged once a minute.
func TestLog_FailingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		var log testkit.Buffer
		forbidden := false
		f.api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if forbidden && r.Name == "web" && r.Verb == "update" {
				return r.Fail(http.StatusForbidden, "no right")
			}
			return nil, nil
		})
		f.start("a", shard.Options{})
		f.passUntil("one member", 3*time.Second, even(1, 256))
		forbidden = true
		f.logged(&log, "b", shard.Options{})
		f.pass(5 * time.Minute)
		forbidden = false
		f.passUntil("two members", time.Minute, even(2, 256))
		if n := strings.Count(log.String(), "the assignment of slots was not stored"); n < 4 || n > 6 {
			t.Errorf("%d lines in 5 minutes:\n%s", n, log.String())
		}
	})
}

// TestP2_SlotsOfOtherSettingsAreServed: while the last members with another Partitioner leave, no
// slot becomes old.
func TestP2_SlotsOfOtherSettingsAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		var log testkit.Buffer
		old := f.logged(&log, "old", shard.Options{Partitioner: shard.ByNamespace()})
		f.passUntil("one member", 3*time.Second, even(1, 256))
		var w witness
		f.logged(&log, "new", shard.Options{Hook: w.hooks()})
		f.pass(2 * time.Minute)
		old.stop()
		f.passUntil("the new one", 3*time.Second, even(1, 256))
		if s := w.group(); s.Unserved > 0 && time.Since(s.UnservedSince) > time.Second {
			t.Errorf("%d slots are unserved for %s", s.Unserved, time.Since(s.UnservedSince))
		}
		f.pass(3 * time.Second)
		for line, n := range map[string]int{
			"the group refuses this replica":                1,
			"slots are not served":                          0,
			`msg="the slots are divided" group=default/web`: 2,
			"count=256 members=1":                           2,
			`msg="all slots are served again"`:              0,
		} {
			testkit.Count(t, log.String(), line, n)
		}
	})
}
