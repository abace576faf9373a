// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// group is a stored assignment whose records every view sees at once, unless a test keeps one back.
type group struct {
	t       *testing.T
	version uint64
	record  Record
	views   map[string]*View
}

var epoch = time.UnixMilli(1_000_000)

// newGroup returns a group whose members have joined in one write and share the slots.
func newGroup(t *testing.T, names ...string) *group {
	g := &group{t: t, version: 10, views: map[string]*View{}}
	g.put(New(settings, Record{Version: 10, Missing: true}, epoch))
	g.apply(func(a *Assignment) (*Assignment, error) { return a.Listed(g.version) })
	n := g.assignment()
	for i, name := range names {
		id := ID{name, uint64(i) + 1}
		g.views[name] = NewView(id, settings, epoch)
		var err error
		n, err = n.Join(Member{ID: id, Weight: 1}, epoch)
		testkit.NoError(t, err)
	}
	g.put(n.Propose(epoch))
	return g
}

func (g *group) put(a *Assignment) {
	g.t.Helper()
	text, err := a.Encode()
	testkit.NoError(g.t, err)
	g.version++
	g.record = Record{Version: g.version, Manager: Manager, Text: text}
	for _, v := range g.views {
		g.see(v)
	}
}

func (g *group) see(v *View) {
	g.t.Helper()
	testkit.NoError(g.t, v.See(g.record, epoch))
}

func (g *group) assignment() *Assignment {
	g.t.Helper()
	a, err := Decode(settings, g.record)
	testkit.NoError(g.t, err)
	return a
}

// apply stores the result of a transition and a proposal.
func (g *group) apply(transition func(*Assignment) (*Assignment, error)) {
	g.t.Helper()
	a, err := transition(g.assignment())
	testkit.NoError(g.t, err)
	g.put(a.Propose(epoch))
}

func (g *group) join(id ID) *View {
	g.t.Helper()
	g.views[id.Name] = NewView(id, settings, epoch)
	g.apply(func(a *Assignment) (*Assignment, error) { return a.Join(Member{ID: id, Weight: 1}, epoch) })
	return g.views[id.Name]
}

func (g *group) owners() map[string]int {
	count := map[string]int{}
	for s := range Slots {
		count[g.assignment().Slot(Slot(s)).Owner.Name]++
	}
	return count
}

// wantError fails unless the transition is refused with this text.
func (g *group) wantError(text string) func(*Assignment, error) {
	return func(a *Assignment, err error) {
		g.t.Helper()
		if a != nil || err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), ";") {
			g.t.Errorf("want a refusal with %q and a remedy, got %v", text, err)
		}
	}
}

// TestP1_AnAdopterActsAfterTheRelease follows one hand-over: join, ready, stop, release.
func TestP1_AnAdopterActsAfterTheRelease(t *testing.T) {
	g := newGroup(t, "a")
	a := g.views["a"]
	b := g.join(ID{"b", 12})
	moves := b.Tasks().Prepare
	if len(moves) != Slots/2 || len(a.Tasks().Owned) != Slots || len(b.Tasks().Owned) != 0 {
		t.Fatalf("b prepares %d slots, and a owns %d", len(moves), len(a.Tasks().Owned))
	}
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Ready(b.id, epoch, moves...) })
	if drain := a.Tasks().Drain; !slices.Equal(drain, moves) || len(b.Tasks().Owned) != 0 {
		t.Fatalf("a drains %v, b owns %v", drain, b.Tasks().Owned)
	}
	s := moves[0]
	before := g.assignment().Slot(s).Epoch
	if !a.Owns(s, before) || b.Owns(s, before) {
		t.Fatal("while it drains, the owner finishes its work")
	}
	g.wantError("its fence is open for slot")(g.assignment().Release(a, "", epoch, moves...))
	a.Stop(epoch, moves...)
	if a.Owns(s, before) || b.Owns(s, before) || !slices.Equal(a.Tasks().Release, moves) {
		t.Fatal("between stop and release, the fences of both are closed")
	}
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Release(a, "a wrote", epoch, moves...) })
	state := g.assignment().Slot(s)
	if state.Owner != b.id || state.Epoch <= before || !b.Owns(s, state.Epoch) || a.Owns(s, state.Epoch) || b.Owns(s, before) {
		t.Fatalf("after the release of epoch %d: %+v", before, state)
	}
	if len(state.After) != 1 || state.After[0].Written != "a wrote" || state.After[0].From != a.id {
		t.Errorf("P4: the handover is %+v", state.After)
	}
}

// TestP1_OnlyTheOwnerReleases: every transition by another member or session is refused.
func TestP1_OnlyTheOwnerReleases(t *testing.T) {
	g := newGroup(t, "a", "b")
	a, b := g.views["a"], g.views["b"]
	n, s := g.assignment(), a.Tasks().Owned[0]
	b.Stop(epoch, s)
	other, late := NewView(ID{"z", 9}, settings, epoch), NewView(ID{"a", 9}, settings, epoch)
	g.wantError("does not own slot")(n.Release(b, "", epoch, s))
	g.wantError("does not own slot")(n.Settle(b.id, s))
	g.wantError("does not move to it")(n.Ready(b.id, epoch, s))
	g.wantError("it is not a member; join first")(n.Release(other, "", epoch, s))
	g.wantError("the member is a@1")(n.Release(late, "", epoch, s))
	g.wantError("is not a member")(n.Ready(other.id, epoch))
	g.wantError("is not a member")(n.Settle(other.id))
	g.wantError("is not a member")(n.Leave(other.id))
	g.wantError("does not wait for it")(n.Acknowledge(a.id))
	g.wantError("listed twice")(n.Listed(99))
}

// TestP1_DeathNeedsAnotherHolderOfTheLease: silence is no proof.
func TestP1_DeathNeedsAnotherHolderOfTheLease(t *testing.T) {
	g := newGroup(t, "a", "b")
	n := g.assignment()
	for _, id := range []ID{{"a", 1}, {"a", 0}, {"z", 99}} {
		g.wantError("proves no death")(n.Dead(id, epoch))
	}
	died := epoch.Add(-15 * time.Second)
	dead, err := n.Dead(ID{"a", 2}, died)
	testkit.NoError(t, err)
	lost := 0
	for s := range Slots {
		if state := dead.Slot(Slot(s)); state.Owner == (ID{}) {
			lost++
			if !state.Since.Equal(died) {
				t.Fatalf("P2: slot %d has no owner since %s", s, state.Since)
			}
		}
	}
	testkit.Equal(t, lost, Slots/2)
	testkit.Equal(t, dead.Joined(ID{"a", 1}), false)
	slot := dead.Propose(epoch).Slot(0)
	testkit.Equal(t, slot.Owner.Name, "b", "then slot 0", slot)
}

// TestP1_ARestartedMemberOwnsNothing of its former session, and ends it.
func TestP1_ARestartedMemberOwnsNothing(t *testing.T) {
	g := newGroup(t, "a", "b")
	before, s := g.assignment(), g.views["a"].Tasks().Owned[0]
	again := NewView(ID{"a", 20}, settings, epoch)
	g.see(again)
	if again.Owns(s, before.Slot(s).Epoch) || !again.Tasks().Join {
		t.Fatal("it owns the slots of the former session")
	}
	g.wantError("the member is a@1 already")(before.Join(Member{ID: ID{"a", 1}, Weight: 1}, epoch))
	again = g.join(again.id)
	if now := g.assignment().Slot(s); g.assignment().Joined(ID{"a", 1}) || now.Owner != again.id || now.Epoch <= before.Slot(s).Epoch {
		t.Errorf("after it has joined, the members are %v, and slot %d is %+v", g.assignment().Members(), s, now)
	}
}

// TestP1_ASlotOfADeadOwnerGoesToItsNextOwner, and a move to a dead next owner ends.
func TestP1_ASlotOfADeadOwnerGoesToItsNextOwner(t *testing.T) {
	g := newGroup(t, "a")
	a, b := g.views["a"], g.join(ID{"b", 12})
	s := b.Tasks().Prepare[0]
	dead, err := g.assignment().Dead(ID{"a", 50}, epoch)
	testkit.NoError(t, err, "the owner is dead")
	testkit.Equal(t, dead.Slot(s).Owner, b.id, "the owner is dead")
	testkit.Equal(t, dead.Slot(s).To, ID{}, "the owner is dead")
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Ready(b.id, epoch, s) })
	a.Stop(epoch, s)
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Dead(ID{"b", 50}, epoch) })
	if state := g.assignment().Slot(s); state.Owner != a.id || state.Draining || state.To != (ID{}) {
		t.Fatalf("the next owner is dead: %+v", state)
	}
	if !slices.Equal(a.Tasks().Release, []Slot{s}) {
		t.Fatalf("a has stopped slot %d and must release it: %+v", s, a.Tasks())
	}
	before := g.assignment().Slot(s).Epoch
	back, err := g.assignment().Release(a, "", epoch, s)
	if err != nil || back.Slot(s).Owner != a.id || back.Slot(s).Epoch <= before {
		t.Errorf("it does not come back under another epoch: %+v, %v", back.Slot(s), err)
	}
}

// TestP1_ANewAssignmentWaitsForEarlierOwners, which may not have seen that the last one was lost.
func TestP1_ANewAssignmentWaitsForEarlierOwners(t *testing.T) {
	g := newGroup(t, "a", "b")
	a, b := g.views["a"], g.views["b"]
	s := a.Tasks().Owned[0]
	held := g.assignment().Slot(s).Epoch
	g.version++
	gone := Record{Version: g.version, Missing: true}
	if err := b.See(gone, epoch); !errors.Is(err, ErrInvalid) || len(b.Tasks().Owned) != 0 || len(b.Unserved(nil)) != Slots {
		t.Fatalf("the assignment is deleted: %v, %+v", err, b.Tasks())
	}
	delete(g.views, "a") // its watch is late
	n := New(settings, gone, epoch)
	testkit.Equal(t, n.Version(), 0)
	testkit.Equal(t, n.Epoch(), gone.Version)
	g.put(n)
	g.wantError("before the assignment was stored")(g.assignment().Listed(g.version - 1))
	joined, err := g.assignment().Join(Member{ID: b.id, Weight: 1}, epoch)
	if err != nil || joined.Propose(epoch) != joined {
		t.Fatalf("before the Leases are listed, slots get owners: %v", err)
	}
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Listed(g.version, a.id, b.id) })
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Join(Member{ID: b.id, Weight: 1}, epoch) })
	if waiting, ok := g.assignment().Recovering(); !ok || !slices.Equal(waiting, []ID{a.id}) || !a.Owns(s, held) || len(b.Tasks().Owned) != 0 {
		t.Fatalf("it waits for %v", waiting)
	}
	for _, u := range b.Unserved(nil) {
		if u.Reason != "a new assignment waits until a@1 acknowledges it or is dead" {
			t.Fatalf("P2: %+v", u)
		}
	}
	later := []func(*Assignment) (*Assignment, error){
		func(n *Assignment) (*Assignment, error) { return n.Acknowledge(a.id) },
		func(n *Assignment) (*Assignment, error) { return n.Dead(ID{"a", 60}, epoch) },
		func(n *Assignment) (*Assignment, error) { return n.Join(Member{ID: a.id, Weight: 1}, epoch) },
	}
	for i, transition := range later {
		n, err := transition(g.assignment())
		if err != nil || n.Propose(epoch).Slot(s).Owner == (ID{}) {
			t.Errorf("after transition %d, slot %d has no owner: %v", i, s, err)
		}
	}
	g.see(a)
	testkit.Equal(t, a.Owns(s, held), false)
	testkit.Equal(t, a.Tasks().Acknowledge, true)
}

// TestP4_HandoversArePassedOn until the owner settles them.
func TestP4_HandoversArePassedOn(t *testing.T) {
	g := newGroup(t, "a")
	s := Slot(0)
	for i, name := range []string{"b", "c"} {
		owner := g.views[g.assignment().Slot(s).Owner.Name]
		g.join(ID{name, uint64(20 + i)})
		g.apply(func(n *Assignment) (*Assignment, error) { return n.Leave(owner.id) })
		owner.Stop(epoch, owner.Tasks().Owned...)
		g.apply(func(n *Assignment) (*Assignment, error) {
			return n.Release(owner, owner.id.Name+" wrote", epoch, owner.Tasks().Release...)
		})
		g.apply(func(n *Assignment) (*Assignment, error) { return n.Leave(owner.id) })
		delete(g.views, owner.id.Name)
	}
	state := g.assignment().Slot(s)
	if state.Owner.Name != "c" || len(state.After) != 2 || state.After[0].Written != "a wrote" || state.After[1].Written != "b wrote" {
		t.Fatalf("after two moves: %+v", state)
	}
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Dead(ID{"c", 99}, epoch) })
	testkit.Len(t, g.assignment().Slot(s).After, 2, "a death drops the handovers of those before")
	d := g.join(ID{"d", 100})
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Settle(d.id, d.Tasks().Owned...) })
	if n := g.assignment(); len(n.Slot(s).After) != 0 || len(n.handovers) != 0 {
		t.Errorf("settled handovers stay: %+v", n.handovers)
	}
}

func TestP4_AReleaseWithoutRoomIsRefused(t *testing.T) {
	g := newGroup(t, "a")
	long, v := strings.Repeat("w", MaxHandover), g.views["a"]
	for room := g.assignment().Room(); room >= 0; room -= MaxHandover {
		s := v.Tasks().Owned[0]
		v.Stop(epoch, s)
		g.wantError("have no room")(g.assignment().Release(v, long+"w", epoch, s))
		n, err := g.assignment().Release(v, long, epoch, s)
		if room < MaxHandover {
			g.wantError("have no room")(n, err)
			break
		}
		testkit.NoError(t, err)
		testkit.Equal(t, n.Room(), room-MaxHandover, "room for bytes")
		again := v.Tasks().Owned[0]
		v.Stop(epoch, again)
		g.wantError("second release in one write")(n.Release(v, "x", epoch, again))
		g.put(n)
	}
}

func TestLeave_AMemberGoesWhenItOwnsNothing(t *testing.T) {
	g := newGroup(t, "a", "b")
	a, b := g.views["a"], g.views["b"]
	leave := func(n *Assignment) (*Assignment, error) { return n.Leave(a.id) }
	g.apply(leave)
	if moves := b.Tasks().Prepare; len(moves) != Slots/2 || !g.assignment().Members()[0].Leaving {
		t.Fatalf("b prepares %d slots of %v", len(moves), g.assignment().Members())
	}
	g.apply(leave)
	a.Stop(epoch, a.Tasks().Owned...)
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Release(a, "", epoch, a.Tasks().Release...) })
	g.apply(leave)
	testkit.Equal(t, g.assignment().Joined(a.id), false)
	testkit.Equal(t, g.owners()["b"], Slots)
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Leave(b.id) })
	b.Stop(epoch, b.Tasks().Owned...)
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Release(b, "", epoch, b.Tasks().Release...) })
	testkit.Equal(t, g.owners()[""], Slots, "the last member leaves", g.owners())
}

func TestJoin_RefusesWhatCannotBeAMember(t *testing.T) {
	g := newGroup(t)
	n := g.assignment()
	for i := range MaxMembers {
		var err error
		n, err = n.Join(Member{ID: ID{"m" + string(rune('0'+i)), 1}, Weight: 1}, epoch)
		testkit.NoError(t, err)
	}
	g.wantError("no slot for another one")(n.Join(Member{ID: ID{"z", 1}, Weight: 1}, epoch))
	n = g.assignment()
	g.wantError("Weight is 0")(n.Join(Member{ID: ID{"z", 1}}, epoch))
	g.wantError("Weight is 1001")(n.Join(Member{ID: ID{"z", 1}, Weight: 1001}, epoch))
	g.wantError("without a name or a term")(n.Join(Member{ID: ID{"z", 0}, Weight: 1}, epoch))
	g.wantError("without a name or a term")(n.Join(Member{ID: ID{"", 1}, Weight: 1}, epoch))
}

// TestP6_ARetargetedMoveKeepsADrainThatBegan unless its next owner leaves.
func TestP6_ARetargetedMoveKeepsADrainThatBegan(t *testing.T) {
	g := newGroup(t, "a")
	a, b := g.views["a"], g.join(ID{"b", 12})
	moves := b.Tasks().Prepare
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Ready(b.id, epoch, moves...) })
	c := g.join(ID{"c", 30})
	if len(c.Tasks().Prepare) == 0 || !slices.Equal(a.Tasks().Drain, moves) {
		t.Fatalf("c joins and gets %d slots; a drains %d of %d", len(c.Tasks().Prepare), len(a.Tasks().Drain), len(moves))
	}
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Leave(a.id) })
	s := moves[0]
	if state := g.assignment().Slot(s); state.To != b.id || !state.Draining {
		t.Fatalf("a leaves: %+v", state)
	}
	g.apply(func(n *Assignment) (*Assignment, error) { return n.Leave(b.id) })
	if state := g.assignment().Slot(s); state.To != c.id || state.Draining {
		t.Errorf("b leaves: %+v", state)
	}
}

// settings is the name of a hash.
const settings = "namespace/name"
