// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/term"
)

func sharded(o *manager.Options) {
	elected(o)
	o.LeaderElection = &shard.Options{Election: *leaseIn(o)}
}

// fakeGroup is a group that gives up its slots after drained was closed. It is its own Coordinator.
type fakeGroup struct {
	drained chan struct{}
	hook    *hook.Hook
}

func (g *fakeGroup) Validate() error { return nil }

func (g *fakeGroup) Elector(h term.Host) (term.Elector, error) {
	g.hook = h.Hook(nil)
	return g, nil
}

func (g *fakeGroup) Run(ctx context.Context, lead term.Lead) error {
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

func (g *fakeGroup) String() string                           { return "default/operator" }
func (g *fakeGroup) Identity() string                         { return "a" }
func (g *fakeGroup) Name() string                             { return "leader-election-operator" }
func (g *fakeGroup) Check(*http.Request) error                { return nil }
func (g *fakeGroup) Slot(types.NamespacedName) (uint8, error) { return 0, nil }
func (g *fakeGroup) Owned() ([]term.OwnedSlot, <-chan struct{}) {
	return nil, nil
}
func (g *fakeGroup) Ready() (string, error)       { return "", nil }
func (g *fakeGroup) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

// TestShards_HaveNoLeader: only on a Lease of its own a function runs once.
func TestShards_HaveNoLeader(t *testing.T) {
	m := newManager(newAPI(), sharded)
	m.AddLease(leaseOf("janitor")).AddLeaderOnly("janitor", (&diary{}).until("janitor", 0))
	m.AddLeaderOnly("sweeper", (&diary{}).until("sweeper", 0))
	const want = `the manager "test" cannot run: AddLeaderOnly: "sweeper" has no leader to run on, because ` +
		`all replicas of a group are active; make a Lease of its own with Manager.AddLease and add it there, or use AddEverywhere`
	testkit.Equal(t, fmt.Sprint(m.Run(t.Context())), want, "Run returns")
}

// TestShards_AMemberWorksUntilItHasGivenUpItsSlots: a stop does not end Lead before the group does.
func TestShards_AMemberWorksUntilItHasGivenUpItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, g := &diary{}, &fakeGroup{drained: make(chan struct{})}
		m := newManager(newAPI(), func(o *manager.Options) { o.LeaderElection = g })
		m.Add(newFake("website", d))
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		stop()
		testkit.Pass(time.Second)
		d.note("all slots have other owners")
		close(g.drained)
		ok(t, result())
		testkit.Equal(t, strings.Join(d.events[2:], ", "), "all slots have other owners, lead website ends, warm website ends", "at the stop")
	})
}

// TestM3_TheGraceTimeOfShardsCountsFromTheStop: a Reconcile that hangs must not keep a slot for
// ever (M3).
func TestM3_TheGraceTimeOfShardsCountsFromTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGroup{drained: make(chan struct{})}
		m := newManager(newAPI(), func(o *manager.Options) {
			o.LeaderElection, o.Grace = g, 10*time.Second
		})
		hangs := newFake("hangs", &diary{})
		hangs.lead = func(_, work context.Context) error {
			<-work.Done() // so the member cannot give up the slot before
			close(g.drained)
			return nil
		}
		m.Add(hangs)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		began := time.Now()
		stop()
		ok(t, result())
		testkit.Equal(t, time.Since(began), 10*time.Second, "the stop takes")
	})
}

// defaulted notes the defaults that it gets.
type defaulted struct {
	*fakeController

	partition term.Partition
}

func (d *defaulted) Default(o controller.Options) { d.partition = o.Partition }

// TestShards_DivideTheControllersOfAdd: a Lease of its own, and AddControllerEverywhere, have all
// keys.
func TestShards_DivideTheControllersOfAdd(t *testing.T) {
	m := newManager(newAPI(), sharded)
	with := func(name string) *defaulted { return &defaulted{fakeController: newFake(name, &diary{})} }
	divided, alone, everywhere := with("divided"), with("alone"), with("everywhere")
	m.Add(divided)
	m.AddLease(leaseOf("alone")).Add(alone)
	m.AddControllerEverywhere(everywhere)
	testkit.NotEqual(t, divided.partition, nil)
	testkit.Equal(t, alone.partition, nil)
	testkit.Equal(t, everywhere.partition, nil)
}

func TestShards_AreNoDefaultOfControllers(t *testing.T) {
	err := manager.Options{Name: "test", ControllerDefaults: controller.Options{Partition: &shard.Group{}}}.Validate()
	wantParts(t, err, "manager.Options.ControllerDefaults: Partition must be nil; set the manager's LeaderElection")
}

// TestShards_TheLogHasMembers: no line is about one leader.
func TestShards_TheLogHasMembers(t *testing.T) {
	var log testkit.Buffer
	g := &fakeGroup{}
	newManager(newAPI(), func(o *manager.Options) {
		o.LeaderElection, o.Logger = g, slog.New(slog.NewTextHandler(&log, nil))
	})
	for _, e := range []hook.Event{
		&hook.LeaseCampaign{}, &hook.LeaseAcquired{}, &hook.LeaseHolder{Identity: "b"}, &hook.LeaseLost{},
		&hook.LeaseReleased{Err: errors.New("no route")}, &hook.LeaseReleased{},
	} {
		g.hook.Send(e)
	}
	wantParts(t, errors.New(log.String()), "joining the group", "member of the group", "leader=b", "left the group")
	for _, word := range []string{"leading", "leads", "campaign"} {
		testkit.NotContains(t, log.String(), word, fmt.Sprintf("the log contains %q", word))
	}
}

func statusOf(m *manager.Manager) *shard.Status { return m.Group().(*shard.Group).Status() } //nolint:forcetypeassert // see sharded

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
				leaseIn(o).Lease, leaseIn(o).Identity = group, ""
			})
			m.Add(newFake("website", &diary{}))
			stop, result := start(t, m)
			testkit.Pass(10 * time.Second)
			return replica{m, c, stop, result}
		}
		owns := func(r replica) int { return len(statusOf(r.Manager).Owned) }
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
			testkit.Pass(time.Minute)
			testkit.Equal(t, owns(renamed[0])+owns(renamed[i]), 0, "slots have two owners")
			old[i].stop()
			ok(t, old[i].result())
		}
		testkit.Pass(time.Minute)
		testkit.Equal(t, owns(renamed[0]), 128)
		testkit.Equal(t, owns(renamed[1]), 128)
		for _, r := range renamed {
			wantLine(t, r.probe, "[+]shards-website-operator ok")
		}
		for _, r := range renamed {
			r.stop()
			ok(t, r.result())
		}
	})
}
