// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/shard"
)

// leader runs an elector of one leader with the group's Lease. at.cut cuts its network.
func (f *fleet) leader(name string, at *replica) (leads func() bool, stop func()) {
	e, cfg := election(), f.api.Config()
	e.Identity = name
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return network{rt, at} })
	elector, err := leaderelection.New(cfg, e)
	testkit.NoError(f.t, err)
	ctx, cancel := context.WithCancel(f.t.Context())
	leading, done := make(chan bool, 1), make(chan struct{})
	leading <- false
	set := func(to bool) { <-leading; leading <- to }
	go func() {
		defer close(done)
		if err := elector.Run(ctx, func(take, _ context.Context) error {
			set(true)
			<-take.Done()
			set(false)
			return nil
		}); err != nil {
			f.t.Error(err)
		}
	}()
	return func() bool { is := <-leading; leading <- is; return is }, func() { cancel(); <-done }
}

// TestP1_NeverALeaderAndAGroup turns a Deployment with a leader into a group, and back.
func TestP1_NeverALeaderAndAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		leads, stop := f.leader("old", &replica{})
		time.Sleep(time.Second)
		a := f.start("a", shard.Options{})
		b := f.start("b", shard.Options{})
		testkit.Equal(t, f.pass(time.Minute)["a"]+f.judge()["b"], 0)
		testkit.Equal(t, leads(), true)
		stop()
		took := f.passUntil("the group", 5*time.Second, func(counts map[string]int) bool { return counts["a"]+counts["b"] == 256 })
		t.Logf("the group works after %s", took)
		again, end := f.leader("new", &replica{})
		defer end()
		f.pass(time.Minute)
		a.stop()
		f.passUntil("the other one", 5*time.Second, func(counts map[string]int) bool { return counts["b"] == 256 })
		f.pass(time.Minute)
		testkit.Equal(t, again(), false, "a leader leads while a group works")
		b.stop()
		f.passUntil("the leader", 5*time.Second, func(map[string]int) bool { return again() })
	})
}

// TestGroup_ALeaderAfterACrashOfAll: the group's Lease has no time limit, so it must be deleted.
// Then a leader that has waited all the time takes over, after the usual wait.
func TestGroup_ALeaderAfterACrashOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{})
		f.passUntil("one member", 5*time.Second, even(1, 256))
		leads, stop := f.leader("new", &replica{})
		defer stop()
		a.cut.Store(true)
		f.pass(2 * time.Minute)
		testkit.Equal(t, leads(), false, "a leader takes the Lease of a group")
		a.stop()
		f.remove("web")
		f.pass(14 * time.Second)
		testkit.Equal(t, leads(), false, "a leader does not wait for members that may work")
		f.passUntil("the leader", 2*time.Second, func(map[string]int) bool { return leads() })
	})
}

// TestP1_ChangedByHand: whatever happens to the group's Lease, no slot has two owners, and all are
// served again.
func TestP1_ChangedByHand(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, f *fleet){
		"the Lease is deleted": func(t *testing.T, f *fleet) {
			f.remove("web")
		},
		"the annotation is removed": func(t *testing.T, f *fleet) {
			f.patch(`{"metadata":{"annotations":{"setpoint.dev/slots":null}}}`)
		},
		"the annotation is edited": func(t *testing.T, f *fleet) {
			f.patch(`{"metadata":{"annotations":{"setpoint.dev/slots":"{}"}}}`)
		},
		"the managedFields are removed": func(t *testing.T, f *fleet) {
			f.patch(`{"metadata":{"managedFields":[{}],"annotations":{"by":"hand"}}}`)
		},
		"another holder is written": func(t *testing.T, f *fleet) {
			f.patch(`{"spec":{"holderIdentity":"me"}}`)
		},
		"an earlier assignment is put back": func(t *testing.T, f *fleet) {
			l := lease(t, f, "web").DeepCopy()
			f.start("late", shard.Options{})
			f.pass(30 * time.Second)
			now := lease(t, f, "web")
			now.Annotations = l.Annotations
			testkit.NoError(t, testkit.Err(f.client().CoordinationV1().Leases("default").Update(t.Context(), now, metav1.UpdateOptions{FieldManager: "hand"})))
		},
		"a member's Lease is deleted": func(t *testing.T, f *fleet) {
			all, err := f.client().CoordinationV1().Leases("default").List(t.Context(), metav1.ListOptions{LabelSelector: shard.GroupLabel})
			if err != nil || len(all.Items) == 0 {
				t.Fatal(len(all.Items), err)
			}
			f.remove(all.Items[0].Name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				f.start("a", shard.Options{})
				f.start("b", shard.Options{})
				f.start("c", shard.Options{})
				f.passUntil("three members", time.Minute, even(3, 256))
				before := f.leaseVersions()
				change(t, f)
				f.pass(time.Second)
				took := f.passUntil("again", 2*time.Minute, func(counts map[string]int) bool {
					if name != "a member's Lease is deleted" && !f.acquiredSince(before) {
						return false
					}
					sum := 0
					for _, n := range counts {
						sum += n
					}
					return sum == 256
				})
				t.Logf("all slots are served after %s", took+time.Second)
			})
		})
	}
}

// acquiredSince reports whether all slots were acquired after a version.
func (f *fleet) acquiredSince(version int) bool {
	for _, r := range f.all {
		for _, a := range r.owns() {
			if a.Epoch < uint64(version) { //nolint:gosec // positive
				return false
			}
		}
	}
	return true
}

func (f *fleet) patch(text string) {
	f.t.Helper()
	testkit.NoError(f.t, testkit.Err(f.client().CoordinationV1().Leases("default").Patch(f.t.Context(), "web", types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: "hand"})))
}

// TestGroup_AnotherHashIsRefused: a member with other settings stays a standby. It
// takes over when the others have left.
func TestGroup_AnotherHashIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{})
		f.passUntil("one member", 5*time.Second, even(1, 256))
		b := f.start("b", shard.Options{Partitioner: shard.ByNamespace()})
		testkit.Equal(t, f.pass(time.Minute)["b"], 0)
		testkit.Contains(t, b.Status().Trouble, "its members use other settings")
		a.stop()
		f.passUntil("the other one", 5*time.Second, func(counts map[string]int) bool { return counts["b"] == 256 })
	})
}

// TestGroup_LeaseWrites: at most 30 writes of Leases for each member and minute, also while slots
// move.
func TestGroup_LeaseWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		var live []*replica
		for i := range 5 {
			live = append(live, f.start(fmt.Sprint("old-", i), shard.Options{}))
		}
		f.passUntil("five members", time.Minute, even(5, 256))
		minute := func() (writes int) {
			before := f.leaseVersions()
			f.pass(time.Minute)
			return f.leaseVersions() - before
		}
		if n := minute(); n > 5*30 || n < 100 {
			t.Errorf("%d writes of 5 members in a minute", n)
		}
		for i := range live {
			old := live[i]
			live[i] = f.start(fmt.Sprint("new-", i), shard.Options{})
			f.pass(20 * time.Second)
			old.stop()
			n := minute()
			t.Logf("%d writes in a minute in which one of 5 members is replaced", n)
			testkit.AtMost(t, n, 5*30)
		}
	})
}

// leaseVersions returns the newest version, which counts all writes.
func (f *fleet) leaseVersions() int {
	all, err := f.client().CoordinationV1().Leases("default").List(f.t.Context(), metav1.ListOptions{})
	testkit.NoError(f.t, err)
	n := 0
	for _, r := range all.ResourceVersion {
		n = n*10 + int(r-'0')
	}
	return n
}

// TestNew_WrongOptions: the error names the field and the remedy.
func TestNew_WrongOptions(t *testing.T) {
	f := newFleet(t)
	for want, test := range map[string]struct {
		lease string
		o     shard.Options
	}{
		"shard.Options.Weight: 1001; set 1 to 1000":                {"web", shard.Options{Weight: 1001}},
		"shard.Options.Settle: -1s, must not be negative":          {"web", shard.Options{Settle: -time.Second}},
		"has 64 characters; a shard group needs at most 63":        {strings.Repeat("w", 64), shard.Options{}},
		"leaderelection.Options.Lease: name the Lease":             {"", shard.Options{}},
		`the function of "func f fnv1a64-fmix64 256" is nil; pass`: {"web", shard.Options{Partitioner: shard.ByFunc("f", nil)}},
	} {
		test.o.Election = leaderelection.Options{Lease: test.lease, Namespace: "default"}
		testkit.ErrorContains(t, testkit.Err(shard.New(f.api.Config(), test.o)), want)
	}
}

// TestGroup_TheLeaseOfAnOldLeader has no managedFields, so that the API server would not track who
// writes it.
func TestGroup_TheLeaseOfAnOldLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		free, seconds := "", int32(1)
		f.api.Put(sim.Leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &free, LeaseDurationSeconds: &seconds},
		})
		f.start("a", shard.Options{})
		f.start("b", shard.Options{})
		f.passUntil("two members", time.Minute, even(2, 256))
		testkit.AtMost(t, f.leaseVersions(), 200)
	})
}

// TestP1_ADeletedLeaseMayHaveBeenRenewed: b's watch is silent, so b sees neither the renewals of a
// nor that a's Lease is deleted. a does not see that, and may work until its trust is over, also if
// its LeaseDuration is longer than b's.
func TestP1_ADeletedLeaseMayHaveBeenRenewed(t *testing.T) {
	for name, lasts := range map[string]struct{ a, b, silent time.Duration }{
		"equal":  {15 * time.Second, 15 * time.Second, 14 * time.Second},
		"longer": {time.Minute, 5 * time.Second, 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				var on atomic.Bool
				a := f.startSpecial(special{name: "a", lasts: lasts.a})
				f.passUntil("one member", 30*time.Second, even(1, 256))
				f.startSpecial(special{name: "b", lasts: lasts.b, wrap: func(next http.RoundTripper) http.RoundTripper { return stall{next, "labelSelector", &on} }})
				f.passUntil("two members", 2*time.Minute, even(2, 256))
				name := a.member(t)
				on.Store(true)
				f.pass(lasts.silent)
				a.cut.Store(true)
				f.api.CutWatches()
				f.remove(name)
				f.passUntil("the other one", 3*lasts.a+15*time.Second, func(counts map[string]int) bool { return counts["b"] == 256 })
			})
		})
	}
}

// TestP1_ADeletedLeaseOfALeader: a member sees neither the renewals of a leader, nor when the Lease
// is deleted. The leader does not see that, either, and may work until its trust is over.
func TestP1_ADeletedLeaseOfALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		old := &replica{}
		leads, stop := f.leader("old", old)
		defer stop()
		time.Sleep(time.Second)
		a := f.start("a", shard.Options{})
		f.pass(20 * time.Second)
		a.cut.Store(true)
		f.api.CutWatches()
		f.pass(15 * time.Second)
		if !leads() {
			t.Fatal("there is no leader")
		}
		old.cut.Store(true)
		f.remove("web")
		a.cut.Store(false)
		f.passUntil("the group", time.Minute, func(counts map[string]int) bool {
			if counts["a"] > 0 && leads() {
				t.Fatal("the group works while a leader leads")
			}
			return counts["a"] == 256
		})
		old.cut.Store(false)
	})
}

// TestP5_ALostSlotThatDrains: when the assignment is lost, the fence closes for running work, too.
func TestP5_ALostSlotThatDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{})
		f.start("b", shard.Options{})
		f.passUntil("two members", time.Minute, even(2, 256))
		work, done := busy(t, a)
		defer done()
		a.stop()
		f.pass(time.Second)
		if !work.Stopped() || work.Term.Trusted() != nil {
			t.Fatalf("the slot does not drain: %v", work.Term.Trusted())
		}
		f.patch(`{"metadata":{"annotations":{"setpoint.dev/slots":null}}}`)
		f.pass(time.Second)
		testkit.NotEqual(t, work.Term.Trusted(), nil, "the fence of the lost slot is open")
	})
}
