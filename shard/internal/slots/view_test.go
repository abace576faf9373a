// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestP5_AnOlderRecordOpensNoFence: records may arrive in any order.
func TestP5_AnOlderRecordOpensNoFence(t *testing.T) {
	g := newGroup(t, "a", "b")
	a := g.views["a"]
	s := a.Tasks().Owned[0]
	old, held := g.record, g.assignment().Slot(s).Epoch
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Leave(a.id) })
	a.Stop(epoch, a.Tasks().Owned...)
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Release(a, "", epoch, a.Tasks().Release...) })
	fresh := NewView(a.id, settings, epoch)
	g.see(fresh)
	for name, v := range map[string]*View{"a": a, "a that has lost its memory": fresh} {
		testkit.Equal(t, v.See(old, epoch), nil, name)
		testkit.Equal(t, v.Owns(s, held), false, name)
		if known, err := v.Assignment(); err != nil || known.Version() != g.version {
			t.Errorf("%s knows version %d, want %d: %v", name, known.Version(), g.version, err)
		}
	}
}

// TestP5_AStopIsFinal: the same ownership never opens again, and a later one does.
func TestP5_AStopIsFinal(t *testing.T) {
	g := newGroup(t, "a")
	a := g.views["a"]
	held := g.assignment().Slot(7).Epoch
	a.Stop(epoch, 7)
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Settle(a.id) })
	testkit.Equal(t, a.Owns(7, held), false, "another record opens the fence again")
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Release(a, "", epoch, 7) })
	testkit.Equal(t, a.Owns(7, held), false, "after the release")
	testkit.Equal(t, a.Owns(7, g.assignment().Slot(7).Epoch), true, "after the release")
}

// TestP2_EverySlotHasAnOwnerThatActsOrIsReported
func TestP2_EverySlotHasAnOwnerThatActsOrIsReported(t *testing.T) {
	g := newGroup(t, "a", "b")
	a, b := g.views["a"], g.views["b"]
	s := a.Tasks().Owned[0]
	well := func(ID) Heartbeat { return Heartbeat{Seen: g.version} }
	silent := epoch.Add(-time.Minute)
	report := func(v *View, heartbeat func(ID) Heartbeat, n int, since time.Time, reason string) {
		t.Helper()
		all := v.Unserved(heartbeat)
		if len(all) != n {
			t.Fatalf("%d slots are reported, want %d", len(all), n)
		}
		for _, u := range all {
			testkit.Equal(t, u.Since.Sub(since), 0, u)
			testkit.Contains(t, u.Reason, reason, u)
		}
	}
	report(b, well, 0, epoch, "")
	report(b, nil, 0, epoch, "")
	report(b, func(id ID) Heartbeat {
		if id == a.id {
			return Heartbeat{Silent: silent, Seen: g.version}
		}
		return well(id)
	}, Slots/2, silent, "its owner a@1 does not renew its Lease")
	report(b, func(id ID) Heartbeat {
		if id == a.id {
			return Heartbeat{Seen: g.assignment().Slot(s).Epoch}
		}
		return well(id)
	}, Slots/2, epoch, "its owner a@1 has not seen that it owns it")

	c := g.join(ID{"c", 30})
	moves := c.Tasks().Prepare
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Ready(c.id, epoch, moves...) })
	report(b, well, len(moves), epoch, "it drains")
	a.Stop(silent, a.Tasks().Owned...)
	if own := a.Unserved(well); own[0].Slot != s || !own[0].Since.Equal(silent) || !strings.Contains(own[0].Reason, "has not stored the release") {
		t.Errorf("its owner reports %+v", own[0])
	}

	n := New(settings, g.record, silent)
	g.put(n)
	report(b, well, Slots, silent, "waits for a list")
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Listed(g.version) })
	report(b, well, Slots, silent, "the group has no members")
	d := NewView(ID{"d", 40}, settings, epoch)
	report(d, well, Slots, epoch, "no valid assignment")
	joined, err := g.assignment().Join(Member{ID: d.id, Weight: 1}, epoch)
	testkit.NoError(t, err)
	g.put(joined)
	report(b, well, Slots, silent, "no owner yet")
}

func TestView_KnowsNothingAtFirst(t *testing.T) {
	v := NewView(ID{"a", 1}, settings, epoch)
	if a, err := v.Assignment(); a != nil || err == nil || v.Owns(0, 0) || len(v.Tasks().Owned) != 0 {
		t.Errorf("it knows %v: %v", a, err)
	}
	v.Stop(epoch, 0)
	testkit.ErrorIs(t, v.See(Record{Version: 5, Missing: true}, epoch.Add(time.Second)), ErrInvalid, "there is no assignment")
	if err := v.See(Record{Version: 4, Manager: Manager, Text: "{}"}, epoch); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("an older record changes the reason: %v", err)
	}
	if all := v.Unserved(nil); len(all) != Slots || !all[0].Since.Equal(epoch) {
		t.Errorf("%d slots are unserved since %s", len(all), all[0].Since)
	}
}

// TestP2_AgesDoNotNeedTheClocksOfOthers: a member whose wall clock is wrong by an hour stores a
// drain. The others report its age by their own clocks.
func TestP2_AgesDoNotNeedTheClocksOfOthers(t *testing.T) {
	for name, test := range map[string]struct{ stored, seen, want time.Duration }{
		"a right clock":            {0, 2 * time.Second, 0},
		"an hour behind":           {-time.Hour, 2 * time.Second, 2 * time.Second},
		"an hour ahead":            {time.Hour, 2 * time.Second, 2 * time.Second},
		"seen half a minute later": {0, 30 * time.Second, 0},
	} {
		g := newGroup(t, "a", "b")
		c, b := g.join(ID{"c", 30}), g.views["b"]
		delete(g.views, "b")
		g.apply(func(n *Assignment) (*Assignment, error) {
			return n.Ready(c.id, epoch.Add(test.stored), c.Tasks().Prepare...)
		})
		for range 2 { // another record changes nothing
			testkit.NoError(t, b.See(g.record, epoch.Add(test.seen)))
			if all := b.Unserved(nil); len(all) == 0 || !all[0].Since.Equal(epoch.Add(test.want)) {
				t.Errorf("%s: reported since %s, want %s", name, all[0].Since.Sub(epoch), test.want)
			}
			g.apply(func(n *Assignment) (*Assignment, error) { return n.Settle(c.id) })
			test.seen += time.Minute
		}
		fresh := NewView(ID{"d", 40}, settings, epoch)
		testkit.NoError(t, fresh.See(g.record, epoch.Add(2*time.Second)))
		testkit.AtMost(t, fresh.Unserved(nil)[0].Since.Sub(epoch), 2*time.Second, name)
	}
}
