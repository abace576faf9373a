// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func neverLead(t *testing.T) func(context.Context, context.Context) error {
	return func(context.Context, context.Context) error {
		t.Error("it leads")
		return nil
	}
}

func TestStopWhileCampaigning(t *testing.T) {
	forbid := func(verbs ...string) func(*sim.Server, *replica) {
		return func(api *sim.Server, _ *replica) {
			give(api, "a") // as after a restart under the same identity, or a term that was lost
			api.Intercept(func(r *sim.Request) (*http.Response, error) {
				for _, verb := range verbs {
					if isLease(r, verb) {
						return r.Fail(http.StatusForbidden, "no right to write")
					}
				}
				return nil, nil
			})
		}
	}
	for name, setUp := range map[string]func(*sim.Server, *replica){
		"another leads":             func(api *sim.Server, _ *replica) { give(api, "b") },
		"the API server refuses":    func(_ *sim.Server, a *replica) { a.cut() },
		"the API server hangs":      func(_ *sim.Server, a *replica) { a.hang() },
		"it may read but not write": forbid("create", "update"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newReplica(t, api, "a")
				setUp(api, a)
				stop, result := a.start(t, neverLead(t))
				testkit.Pass(seconds(7.5))
				began := time.Now()
				stop()
				ok(t, result())
				testkit.Equal(t, time.Since(began), 0, "the time until the stop")
			})
		})
	}
}

func TestStopBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newReplica(t, sim.NewServer(sim.Leases), "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ok(t, a.Run(ctx, neverLead(t)))
	})
}

// TestStopAtTheMomentOfAcquiring: Run returns and the Lease is free, whichever comes first.
func TestStopAtTheMomentOfAcquiring(t *testing.T) {
	for name, verb := range map[string]string{"a new Lease": http.MethodPost, "one that is free": http.MethodPut} {
		// After the answer has come.
		for _, stopped := range []time.Duration{-500 * time.Millisecond, -1, 0} {
			t.Run(fmt.Sprintf("%s, %s", name, stopped), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(sim.Leases)
					if verb == http.MethodPut {
						give(api, "")
					}
					a := newReplica(t, api, "a")
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					through := func(req *http.Request) (*http.Response, error) {
						resp, err := api.RoundTrip(req)
						if req.Method != verb || ctx.Err() != nil {
							return resp, err
						}
						if stopped == 0 {
							time.AfterFunc(0, cancel) // or a little earlier or later
							return resp, err
						}
						cancel()
						select {
						case <-time.After(-stopped):
							return resp, err
						case <-req.Context().Done():
							return nil, req.Context().Err()
						}
					}
					a.line.Store(&through)
					ok(t, a.Run(ctx, untilStopped))
					if h := holder(t, api); h != "" || len(a.events) == 0 {
						t.Fatalf("%q holds the Lease, events are %q", h, a.events)
					}
					testkit.Equal(t, a.events[len(a.events)-1], "released operator: false", "the last event")
				})
			})
		}
	}
}

// TestStopWhileAcquiringIsNotAnswered: a stop does not wait long for the answer to the last
// request.
func TestStopWhileAcquiringIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if isLease(r, "create") {
				return r.Hang()
			}
			return nil, nil
		})
		stop, result := a.start(t, neverLead(t))
		testkit.Pass(seconds(0.5))
		began := time.Now()
		stop()
		ok(t, result())
		testkit.AtMost(t, time.Since(began), time.Second)
	})
}

func TestReleaseFailsSoon(t *testing.T) {
	for name, trouble := range map[string]func(*replica){"refused": (*replica).cut, "hung": (*replica).hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newReplica(t, api, "a")
				stop, result := a.start(t, untilStopped)
				testkit.Pass(seconds(5.5))
				trouble(a)
				began := time.Now()
				stop()
				ok(t, result())
				testkit.AtMost(t, time.Since(began), 2*time.Second)
				a.want(t, "acquired operator", "released operator: true")
			})
		})
	}
}

func TestHandOverByRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a, b := newReplica(t, api, "a"), newReplica(t, api, "b")
		stopA, resultA := a.start(t, untilStopped)
		testkit.Pass(time.Second)
		var led time.Time
		stopB, resultB := b.start(t, func(take, work context.Context) error {
			led = time.Now()
			return untilStopped(take, work)
		})
		testkit.Pass(time.Minute)
		testkit.Equal(t, led.IsZero(), true, "both lead")
		stopA()
		ok(t, resultA())
		released := time.Now()
		testkit.Pass(10 * time.Second)
		testkit.Equal(t, led.IsZero(), false)
		testkit.AtMost(t, led.Sub(released), 5*time.Second)
		stopB()
		ok(t, resultB())
		b.want(t, "a leads operator", "acquired operator", "released operator: false")
	})
}

func TestHandOverByExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a, b := newReplica(t, api, "a"), newReplica(t, api, "b")
		stopA, resultA := a.start(t, untilStopped)
		testkit.Pass(time.Second)
		var led time.Time
		stopB, resultB := b.start(t, func(take, work context.Context) error {
			led = time.Now()
			return untilStopped(take, work)
		})
		testkit.Pass(seconds(5.5))
		a.cut()
		renewed := lease(t, api).Spec.RenewTime.Time
		testkit.Pass(time.Minute)
		// B reads every 2s to 4.4s.
		if took := led.Sub(renewed); took < 15*time.Second || took > 24*time.Second {
			t.Errorf("b leads %s after a's last renewal", took)
		}
		stopA()
		stopB()
		ok(t, resultA())
		ok(t, resultB())
		a.want(t, "acquired operator", "lost operator")
	})
}

// TestNeverTwoLeaders starts, stops and disconnects three replicas at random.
func TestNeverTwoLeaders(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			api := sim.NewServer(sim.Leases)
			var leaders, terms atomic.Int32
			lead := func(_, work context.Context) error {
				terms.Add(1)
				testkit.AtMost(t, leaders.Add(1), 1)
				<-work.Done()
				leaders.Add(-1)
				return nil
			}
			until := func(take, work context.Context) error {
				work, cancel := context.WithCancel(work)
				defer cancel()
				defer context.AfterFunc(take, cancel)()
				return lead(take, work)
			}
			type running struct {
				*replica
				stop   func()
				result func() error
			}
			replicas := make([]*running, 3)
			for range 200 {
				i := random.IntN(len(replicas))
				switch r := replicas[i]; {
				case r == nil:
					r = &running{replica: newReplica(t, api, "")}
					r.stop, r.result = r.start(t, until)
					replicas[i] = r
				case random.IntN(2) == 0:
					r.stop()
					ok(t, r.result())
					replicas[i] = nil
				case random.IntN(2) == 0:
					[]func(){r.cut, r.hang}[random.IntN(2)]()
				default:
					r.mend()
				}
				time.Sleep(time.Duration(random.Int64N(int64(20 * time.Second))))
			}
			for _, r := range replicas {
				if r != nil {
					r.stop()
					ok(t, r.result())
				}
			}
			testkit.AtLeast(t, terms.Load(), 20)
		})
	}
}
