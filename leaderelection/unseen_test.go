// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

// unseen changes of a Lease, all by hand.
var unseen = map[string]func(*testing.T, *sim.Server){
	"deleted": func(_ *testing.T, api *sim.Server) { api.Remove(sim.Leases, "default", "operator") },
	"without a holder": func(t *testing.T, api *sim.Server) {
		edit(t, api, func(s *coordinationv1.LeaseSpec) { *s.HolderIdentity = "" })
	},
	"emptied": func(t *testing.T, api *sim.Server) {
		edit(t, api, func(s *coordinationv1.LeaseSpec) { *s = coordinationv1.LeaseSpec{} })
	},
}

// TestL1_AHolderMayHaveRenewedUnseen: b sees neither the renewals of a nor who changes the Lease
// then. a does not see the change, and works until its trust is over.
func TestL1_AHolderMayHaveRenewedUnseen(t *testing.T) {
	for name, change := range unseen {
		for _, apart := range []float64{3, 14, 20, 60} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(sim.Leases)
					a := newReplica(t, api, "a")
					var ended time.Time
					stop, result := a.start(t, func(_, work context.Context) error {
						<-work.Done()
						ended = time.Now()
						return nil
					})
					testkit.Pass(seconds(1))
					b := newStandby(t, api, "b")
					testkit.Pass(seconds(30))
					b.cut()
					api.CutWatches()
					testkit.Pass(seconds(apart))
					a.cut()
					renewed := lease(t, api).Spec.RenewTime.Time
					change(t, api)
					testkit.Pass(seconds(0.1))
					b.mend()
					testkit.Pass(time.Minute)
					if led := b.led.Sub(renewed); led < seconds(15) || led > seconds(35) || b.led.Before(ended) {
						t.Errorf("b leads %s after the last renewal of a, whose work has ended after %s", led, ended.Sub(renewed))
					}
					stop()
					ok(t, result())
					b.stop()
					ok(t, b.result())
					b.want(t, "a leads operator", "acquired operator", "released operator: false")
				})
			})
		}
	}
}

// TestL1_ALeaseThatWasDeletedIsHeldForItsDuration: another one may have come and gone unseen. The
// last record that was seen has the duration.
func TestL1_ALeaseThatWasDeletedIsHeldForItsDuration(t *testing.T) {
	for _, long := range []int32{15, 40} {
		synctest.Test(t, func(t *testing.T) {
			api := sim.NewServer(sim.Leases)
			give(api, "a")
			edit(t, api, func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = &long })
			b := newStandby(t, api, "b")
			testkit.Pass(seconds(1))
			api.Remove(sim.Leases, "default", "operator")
			testkit.Pass(seconds(float64(long)))
			created := lease(t, api)
			if created == nil || *created.Spec.LeaseDurationSeconds != long || !b.led.IsZero() {
				t.Fatalf("the Lease is %+v, b leads since %s", created, b.led)
			}
			// This one is deleted, too, while b is away.
			b.cut()
			api.CutWatches()
			testkit.Pass(seconds(50))
			api.Remove(sim.Leases, "default", "operator")
			b.mend()
			mended := time.Now()
			testkit.Pass(2 * time.Minute)
			b.leadsAfter(t, mended, seconds(float64(long)), seconds(5)) // it polls
			testkit.Count(t, b.made(), "POST", 2)
		})
	}
}

// TestL1_AFormerLeaderMayHaveASuccessor: a was suspended. Meanwhile b led, and then the Lease was
// deleted.
func TestL1_AFormerLeaderMayHaveASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := &standby{replica: newReplica(t, api, "a")}
		jump := leaderelection.Suspend(a.Elector)
		a.begin(t)
		testkit.Pass(seconds(5.5))
		a.led = time.Time{}
		jump(time.Hour)
		api.Remove(sim.Leases, "default", "operator") // b's
		deleted := time.Now()
		testkit.Pass(time.Minute)
		a.leadsAfter(t, deleted, seconds(15), seconds(5))
	})
}

// TestL7_ALeaderCreatesItsDeletedLeaseAtOnce: it has renewed it within LeaseDuration, so no other
// process has acquired it. That another one led before does not matter.
func TestL7_ALeaderCreatesItsDeletedLeaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		give(api, "b")
		a := newStandby(t, api, "a")
		testkit.Pass(time.Minute)
		api.Remove(sim.Leases, "default", "operator")
		deleted := time.Now()
		testkit.Pass(time.Minute)
		a.leadsAfter(t, deleted, 0, seconds(2))
	})
}

// TestNeverTwoLeaders_DespiteDeletedLeases: three replicas are disconnected, and the Lease is
// deleted, at random. No replica is new, because a new one creates a missing Lease at once.
func TestNeverTwoLeaders_DespiteDeletedLeases(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			api := sim.NewServer(sim.Leases)
			var leaders, terms atomic.Int32
			lead := func(_, work context.Context) error {
				terms.Add(1)
				testkit.AtMost(t, leaders.Add(1), 1, "seed", seed)
				<-work.Done()
				leaders.Add(-1)
				return nil
			}
			var replicas []*replica
			var stops []func()
			var results []func() error
			for _, name := range []string{"a", "b", "c"} {
				r := newReplica(t, api, name)
				stop, result := r.start(t, lead)
				testkit.Pass(seconds(1))
				replicas, stops, results = append(replicas, r), append(stops, stop), append(results, result)
			}
			for range 300 {
				switch r := replicas[random.IntN(len(replicas))]; random.IntN(5) {
				case 0:
					r.cut()
				case 1:
					r.hang()
				case 2:
					r.mend()
					api.CutWatches()
				case 3:
					r.mend()
				case 4:
					api.Remove(sim.Leases, "default", "operator")
				}
				time.Sleep(time.Duration(random.Int64N(int64(20 * time.Second))))
			}
			testkit.AtLeast(t, terms.Load(), 20)
			for i, r := range replicas {
				r.cut() // the terms are lost
				stops[i]()
			}
			for _, result := range results {
				ok(t, result())
			}
		})
	}
}
