// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

func TestL3_TheLeaseIsRenewedWhileLeadStopsAndReleasedAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		stop, result := a.start(t, func(take, work context.Context) error {
			<-take.Done()
			time.Sleep(time.Minute)
			testkit.Equal(t, work.Err(), nil, context.Cause(work))
			testkit.Equal(t, holder(t, api), "a", "while lead runs, holds the Lease")
			a.note("lead returns")
			return nil
		})
		testkit.Pass(seconds(5.5))
		stop()
		for range 60 {
			if age := time.Since(lease(t, api).Spec.RenewTime.Time); holder(t, api) != "a" || age > 3*time.Second {
				t.Fatalf("while lead stops, %q holds the Lease, renewed %s ago", holder(t, api), age)
			}
			testkit.Pass(time.Second)
		}
		ok(t, result())
		a.want(t, "acquired operator", "lead returns", "released operator: false")
		testkit.Equal(t, holder(t, api), "", "afterwards")
		testkit.Equal(t, *lease(t, api).Spec.LeaseDurationSeconds, 1)
	})
}

func TestL4_ALeaseThatAnotherHoldsIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		stop, result := a.start(t, func(take, _ context.Context) error {
			<-take.Done()
			give(api, "b")
			return nil
		})
		testkit.Pass(seconds(5.5))
		stop()
		ok(t, result())
		testkit.Equal(t, holder(t, api), "b", "holds the Lease")
	})
}

// TestL4_ALeaseThatChangesMeanwhileIsNotReleased: another process takes it just before the release,
// perhaps with our identity, or in a Lease that was created again.
func TestL4_ALeaseThatChangesMeanwhileIsNotReleased(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*sim.Server)
		holder string
		events []string
	}{
		"by a rival":              {func(api *sim.Server) { give(api, "b") }, "b", []string{"b leads operator", "lost operator"}},
		"by a namesake":           {func(api *sim.Server) { giveAt(api, "a", time.Now().Add(-time.Second)) }, "a", []string{"lost operator"}},
		"by a new Lease":          {func(api *sim.Server) { remake(t, api) }, "a", []string{"lost operator"}},
		"by a client that labels": {func(api *sim.Server) { label(t, api) }, "", []string{"released operator: false"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newReplica(t, api, "a")
				stop, result := a.start(t, untilStopped)
				testkit.Pass(seconds(5.5))
				changed := false
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if isLease(r, "update") && !changed {
						changed = true
						test.change(api)
					}
					return nil, nil
				})
				stop()
				ok(t, result())
				testkit.Equal(t, holder(t, api), test.holder, "holds the Lease")
				a.want(t, append([]string{"acquired operator"}, test.events...)...)
			})
		})
	}
}

// TestL4_ARenewalUnderWayIsReleased: it was stored, although its answer is missing.
func TestL4_ARenewalUnderWayIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		stop, result := a.start(t, untilStopped)
		testkit.Pass(seconds(5.5))
		deaf := func(req *http.Request) (*http.Response, error) {
			if _, err := api.RoundTrip(req); err != nil {
				return nil, err
			}
			a.mend()
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		a.line.Store(&deaf)
		testkit.Pass(seconds(1))
		stop()
		ok(t, result())
		testkit.Equal(t, holder(t, api), "", "holds the Lease")
		a.want(t, "acquired operator", "released operator: false")
	})
}

func TestL5_ALostTermIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		terms := 0
		stop, result := a.start(t, func(take, work context.Context) error {
			terms++
			if terms > 1 {
				return untilStopped(take, work)
			}
			<-work.Done()
			testkit.ErrorIs(t, context.Cause(work), leaderelection.ErrLost)
			testkit.ErrorIs(t, context.Cause(take), leaderelection.ErrLost)
			testkit.AtLeast(t, seconds(15)-time.Since(lease(t, api).Spec.RenewTime.Time), 2*time.Second)
			time.Sleep(2 * time.Second)
			return work.Err()
		})
		testkit.Pass(seconds(5.5))
		a.cut()
		testkit.Pass(time.Minute)
		testkit.Equal(t, terms, 1, "terms without an API server")
		a.mend()
		testkit.Pass(time.Minute)
		stop()
		ok(t, result())
		a.want(t, "acquired operator", "lost operator", "acquired operator", "released operator: false")
	})
}

func TestL5_WorkThatOutlivesTheLeaseEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		free := make(chan struct{})
		_, result := a.start(t, func(context.Context, context.Context) error {
			<-free
			return nil
		})
		testkit.Pass(seconds(5.5))
		a.cut()
		err := result()
		testkit.ErrorContains(t, err, "the Lease default/operator was lost", "Run returned")
		testkit.Equal(t, time.Since(lease(t, api).Spec.RenewTime.Time), 15*time.Second, "Run returned after the last renewal")
		a.want(t, "acquired operator", "lost operator")
		close(free)
	})
}

// TestL5_TheTermIsOverWhenAnotherHoldsTheLease: client-go's elector would lead until its
// RenewDeadline.
func TestL5_TheTermIsOverWhenAnotherHoldsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		give(api, "b") // the holder before, so that a known holder returns
		a := newReplica(t, api, "a")
		var lost time.Time
		stop, result := a.start(t, func(take, work context.Context) error {
			<-take.Done()
			if errors.Is(context.Cause(work), leaderelection.ErrLost) {
				lost = time.Now()
			}
			return nil
		})
		testkit.Pass(time.Minute)
		give(api, "b")
		taken := time.Now()
		testkit.Pass(5 * time.Second)
		testkit.Equal(t, lost.IsZero(), false)
		testkit.AtMost(t, lost.Sub(taken), 3*time.Second)
		testkit.Equal(t, holder(t, api), "b", "holds the Lease")
		testkit.Pass(time.Minute) // b is gone: its Lease expires
		stop()
		ok(t, result())
		a.want(t, "b leads operator", "acquired operator", "b leads operator", "lost operator", "acquired operator", "released operator: false")
	})
}

func TestWhatLeadReturnsEndsRun(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		returns, want error
	}{"error": {boom, boom}, "nil": {nil, nil}, "cancelled by itself": {context.Canceled, context.Canceled}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newReplica(t, api, "a")
				_, result := a.start(t, func(context.Context, context.Context) error { return test.returns })
				testkit.ErrorIs(t, result(), test.want, "Run returned")
				testkit.Equal(t, holder(t, api), "", "holds the Lease")
			})
		})
	}
}

func TestAnErrorInALostTermEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		boom := errors.New("boom")
		_, result := a.start(t, func(_, work context.Context) error {
			<-work.Done()
			return boom
		})
		testkit.Pass(seconds(5.5))
		a.cut()
		testkit.ErrorIs(t, result(), boom, "Run returned")
	})
}

func TestLeadSaysThatItWasStopped(t *testing.T) {
	errStop := errors.New("SIGTERM")
	for name, says := range map[string]func(context.Context) error{
		"error": func(take context.Context) error { return fmt.Errorf("list: %w", take.Err()) },
		"cause": func(take context.Context) error { return fmt.Errorf("list: %w", context.Cause(take)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newReplica(t, sim.NewServer(sim.Leases), "a")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(errStop) })
				ok(t, a.Run(ctx, func(take, _ context.Context) error {
					<-take.Done()
					testkit.ErrorIs(t, context.Cause(take), errStop)
					return says(take)
				}))
				a.want(t, "acquired operator", "released operator: false")
			})
		})
	}
}

func TestLeadThatExitsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		_, result := a.start(t, func(context.Context, context.Context) error {
			runtime.Goexit()
			return nil
		})
		testkit.ErrorContains(t, result(), "runtime.Goexit", "Run returned")
		testkit.Equal(t, holder(t, api), "", "holds the Lease")
	})
}

func TestOneHungRequestDoesNotCostTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		stop, result := a.start(t, untilStopped)
		testkit.Pass(seconds(5.5))
		hung := false
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if isLease(r, "update") && !hung {
				hung = true
				return r.Hang()
			}
			return nil, nil
		})
		testkit.Pass(time.Minute)
		stop()
		ok(t, result())
		a.want(t, "acquired operator", "released operator: false")
	})
}
