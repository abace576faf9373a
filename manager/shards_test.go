// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
)

func sharded(o *manager.Options) {
	elected(o)
	o.Shards = &shard.Options{}
}

// fakeGroup is a group that gives up its slots after drained was closed.
type fakeGroup struct{ drained chan struct{} }

func (g *fakeGroup) Run(ctx context.Context, lead leaderelection.Lead) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	take, end := context.WithCancel(work)
	result := make(chan error, 1)
	go func() { result <- lead(take, work) }()
	<-ctx.Done()
	<-g.drained
	end()
	return <-result
}

func (g *fakeGroup) String() string            { return "default/operator" }
func (g *fakeGroup) Identity() string          { return "a" }
func (g *fakeGroup) Name() string              { return "leader-election-operator" }
func (g *fakeGroup) Check(*http.Request) error { return nil }

func TestShards_RequireLeaderElection(t *testing.T) {
	m := newManager(newAPI(), func(o *manager.Options) { o.Shards = &shard.Options{} })
	const want = `the manager "test" cannot run: manager.Options.Shards: it requires LeaderElection, ` +
		`whose Lease, Namespace, Identity and durations the group of replicas uses`
	if err := m.Run(t.Context()); err == nil || err.Error() != want {
		t.Errorf("Run returns\n%v, want\n%s", err, want)
	}
}

// TestShards_HaveNoLeader: only on a Lease of its own a function runs once.
func TestShards_HaveNoLeader(t *testing.T) {
	m := newManager(newAPI(), sharded)
	m.Lease(leaseOf("janitor")).AddLeaderOnly("janitor", (&diary{}).until("janitor", 0))
	m.AddLeaderOnly("sweeper", (&diary{}).until("sweeper", 0))
	const want = `the manager "test" cannot run: AddLeaderOnly: "sweeper" has no leader to run on, because with Options.Shards ` +
		`all replicas are active; make a Lease of its own with Manager.Lease and add it there, or use AddEverywhere`
	if err := m.Run(t.Context()); err == nil || err.Error() != want {
		t.Errorf("Run returns\n%v, want\n%s", err, want)
	}
}

// TestShards_AMemberWorksUntilItHasGivenUpItsSlots: a stop does not end Lead before the group does.
func TestShards_AMemberWorksUntilItHasGivenUpItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, g := &diary{}, &fakeGroup{drained: make(chan struct{})}
		m := newManager(newAPI(), sharded)
		manager.SetElector(m, g)
		m.Add(newFake("website", d))
		stop, result := start(t, m)
		pass(time.Second)
		stop()
		pass(time.Second)
		d.note("all slots have other owners")
		close(g.drained)
		ok(t, result())
		if got := strings.Join(d.events[2:], ", "); got != "all slots have other owners, lead website ends, warm website ends" {
			t.Errorf("at the stop: %s", got)
		}
	})
}

// TestShards_TheGraceTimeCountsFromTheStop: a Reconcile that hangs must not keep a slot for ever
// (M3).
func TestShards_TheGraceTimeCountsFromTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGroup{drained: make(chan struct{})}
		m := newManager(newAPI(), func(o *manager.Options) {
			sharded(o)
			o.Grace = 10 * time.Second
		})
		manager.SetElector(m, g)
		hangs := newFake("hangs", &diary{})
		hangs.lead = func(_, work context.Context) error {
			<-work.Done() // so the member cannot give up the slot before
			close(g.drained)
			return nil
		}
		m.Add(hangs)
		stop, result := start(t, m)
		pass(time.Second)
		began := time.Now()
		stop()
		ok(t, result())
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the stop takes %s, want the grace time", took)
		}
	})
}

// defaulted notes the defaults that it gets.
type defaulted struct {
	*fakeController
	shards *shard.Group
}

func (d *defaulted) Default(o controller.Options) { d.shards = o.Shards }

// TestShards_DivideTheControllersOfAdd: a Lease of its own, and AddControllerEverywhere, have all
// keys.
func TestShards_DivideTheControllersOfAdd(t *testing.T) {
	m := newManager(newAPI(), sharded)
	with := func(name string) *defaulted { return &defaulted{fakeController: newFake(name, &diary{})} }
	divided, alone, everywhere := with("divided"), with("alone"), with("everywhere")
	m.Add(divided)
	m.Lease(leaseOf("alone")).Add(alone)
	m.AddControllerEverywhere(everywhere)
	if divided.shards == nil || alone.shards != nil || everywhere.shards != nil {
		t.Errorf("the groups are %v, %v and %v", divided.shards, alone.shards, everywhere.shards)
	}
}

func TestShards_AreNoDefaultOfControllers(t *testing.T) {
	err := manager.Options{Name: "test", Controller: controller.Options{Shards: &shard.Group{}}}.Validate()
	wantParts(t, err, "manager.Options.Controller: Shards must be nil; set the manager's own Shards")
}

// TestShards_TheLogHasMembers: no line is about one leader.
func TestShards_TheLogHasMembers(t *testing.T) {
	var log buffer
	m := newManager(newAPI(), func(o *manager.Options) {
		sharded(o)
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	manager.SetElector(m, &fakeGroup{})
	hooks := manager.LeaseHooks(m)
	hooks.Campaigning("operator")
	hooks.Acquired("operator")
	hooks.Leader("operator", "b")
	hooks.Lost("operator")
	hooks.Released("operator", errors.New("no route"))
	hooks.Released("operator", nil)
	wantParts(t, errors.New(log.String()), "joining the group", "member of the group", "leader=b", "left the group")
	for _, word := range []string{"leading", "leads", "campaign"} {
		if strings.Contains(log.String(), word) {
			t.Errorf("the log contains %q:\n%s", word, log.String())
		}
	}
}

// TestP1_ARollingUpdateThatRenamesTheLease: the new replica is ready while it waits, serves
// nothing, and works when the last old member has left.
func TestP1_ARollingUpdateThatRenamesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Leases, eventsResource)
		defer api.Close()
		type replica struct {
			*manager.Manager

			probe  *http.Client
			stop   func()
			result func() error
		}
		join := func(group string) replica {
			m, c := healthy(t, api, func(o *manager.Options) {
				sharded(o)
				o.LeaderElection.Lease, o.LeaderElection.Identity = group, ""
			})
			m.Add(newFake("website", &diary{}))
			stop, result := start(t, m)
			pass(10 * time.Second)
			return replica{m, c, stop, result}
		}
		owns := func(r replica) int { return len(r.Shards().Status().Owned) }
		old := []replica{join("operator"), join("operator")}
		if a, b := owns(old[0]), owns(old[1]); a+b != 256 {
			t.Fatalf("the old replicas own %d and %d slots", a, b)
		}
		var renamed []replica
		for i := range old { // maxSurge 1, maxUnavailable 0
			renamed = append(renamed, join("website-operator"))
			wantLine(t, renamed[i].probe, "[+]leader-election-website-operator ok")
			wantLine(t, renamed[i].probe, "[+]shards-website-operator ok: members of the group operator of the same program (test) work: "+
				"was the group's Lease renamed? Stop the replicas with the old name; give two programs two names")
			pass(time.Minute)
			if n := owns(renamed[0]) + owns(renamed[i]); n != 0 {
				t.Errorf("%d slots have two owners", n)
			}
			old[i].stop()
			ok(t, old[i].result())
		}
		pass(time.Minute)
		if a, b := owns(renamed[0]), owns(renamed[1]); a != 128 || b != 128 {
			t.Errorf("the new replicas own %d and %d slots", a, b)
		}
		for _, r := range renamed {
			wantLine(t, r.probe, "[+]shards-website-operator ok")
		}
		for _, r := range renamed {
			r.stop()
			ok(t, r.result())
		}
	})
}
