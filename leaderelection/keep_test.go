// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

func TestARenewalIsOneRequestPerRetryPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newStandby(t, sim.NewServer(sim.Leases), "a")
		testkit.Pass(seconds(1))
		testkit.Equal(t, a.made(), "GET POST", "to acquire it has made")
		testkit.Pass(seconds(60))
		testkit.Equal(t, a.made(), strings.TrimSpace(strings.Repeat("PUT ", 30)), "in a minute it has made")
		a.stop()
		ok(t, a.result())
	})
}

// TestL7_TheTermEndsWhenTheLeaseIsNotOurs: it ends at the next renewal, and its trust ends before
// the work is cancelled.
func TestL7_TheTermEndsWhenTheLeaseIsNotOurs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*testing.T, *sim.Server)
		again  time.Duration // until it leads again
	}{
		"another holder": {func(_ *testing.T, api *sim.Server) { give(api, "b") }, seconds(15)},
		"no holder":      {func(_ *testing.T, api *sim.Server) { give(api, "") }, seconds(1)},
		"a namesake":     {func(_ *testing.T, api *sim.Server) { giveAt(api, "a", time.Now().Add(-time.Minute)) }, seconds(16)},
		// All its records are ours, and no work runs under it.
		"created again": {remake, seconds(1)},
		"deleted":       {func(_ *testing.T, api *sim.Server) { api.Remove(sim.Leases, "default", "operator") }, seconds(1)},
		"deleted, and the answer is 404": {func(_ *testing.T, api *sim.Server) {
			api.Remove(sim.Leases, "default", "operator")
			api.Intercept(func(r *sim.Request) (*http.Response, error) {
				if isLease(r, "update") && api.Object(sim.Leases, "default", "operator") == nil {
					return r.Fail(http.StatusNotFound, "no such namespace")
				}
				return nil, nil
			})
		}, seconds(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newReplica(t, api, "a")
				var terms []time.Time
				var lost time.Time
				stop, result := a.start(t, func(take, work context.Context) error {
					terms = append(terms, time.Now())
					<-take.Done()
					if lost.IsZero() {
						lost = time.Now()
						testkit.ErrorIs(t, term.FromContext(work).Trusted(), leaderelection.ErrLost, "when the work ends, its term says")
					}
					return nil
				})
				testkit.Pass(seconds(61))
				test.change(t, api)
				changed := time.Now()
				testkit.Pass(time.Minute)
				testkit.Equal(t, lost.IsZero(), false)
				testkit.AtMost(t, lost.Sub(changed), seconds(2))
				if len(terms) != 2 || terms[1].Sub(changed) < test.again || terms[1].Sub(changed) > test.again+2*time.Second {
					t.Errorf("terms began at %s, the change was at %s", terms, changed)
				}
				stop()
				ok(t, result())
			})
		})
	}
}

// TestL7_ATermSurvivesWhatDoesNotEndIt: the next renewal overwrites the change, with one additional
// Get.
func TestL7_ATermSurvivesWhatDoesNotEndIt(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *sim.Server){
		"labelled": label,
		"shortened": func(t *testing.T, api *sim.Server) {
			edit(t, api, func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = new(int32) })
		},
		"without what others do not need": func(t *testing.T, api *sim.Server) {
			edit(t, api, func(s *coordinationv1.LeaseSpec) {
				s.LeaseDurationSeconds, s.AcquireTime, s.LeaseTransitions = nil, nil, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newStandby(t, api, "a")
				testkit.Pass(seconds(61))
				change(t, api)
				a.made()
				testkit.Pass(seconds(2))
				testkit.Equal(t, a.made(), "PUT GET PUT")
				testkit.Equal(t, *lease(t, api).Spec.LeaseDurationSeconds, 15)
				a.stop()
				ok(t, a.result())
				a.want(t, "acquired operator", "released operator: false")
			})
		})
	}
}

// TestL5_TroubleThatPassesDoesNotCostTheTerm: the trouble is shorter than RenewDeadline.
func TestL5_TroubleThatPassesDoesNotCostTheTerm(t *testing.T) {
	for name, answer := range map[string]func(*sim.Request) (*http.Response, error){
		"500":       func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusInternalServerError, "oh") },
		"503":       func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusServiceUnavailable, "oh") },
		"401":       func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusUnauthorized, "oh") },
		"409":       func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusConflict, "oh") },
		"refused":   func(r *sim.Request) (*http.Response, error) { return r.Refuse() },
		"hung once": func(r *sim.Request) (*http.Response, error) { return r.Hang() },
		"429, 1 s":  tooMany(1),
		"429, 4 s":  tooMany(4),
		"429, 1 h":  tooMany(3600),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newStandby(t, api, "a")
				testkit.Pass(seconds(61))
				n, began := 0, time.Now()
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					trouble := time.Since(began) < seconds(8) && !strings.HasPrefix(name, "hung") || n == 0
					if isLease(r, "update") && trouble {
						n++
						return answer(r)
					}
					return nil, nil
				})
				testkit.Pass(seconds(20))
				if most := map[string]int{"429, 4 s": 3, "429, 1 h": 3, "409": 25}[name]; most != 0 && n > most || n > 25 {
					t.Errorf("%d requests in 8 s", n)
				}
				a.stop()
				ok(t, a.result())
				a.want(t, "acquired operator", "released operator: false")
			})
		})
	}
}

func tooMany(seconds int32) func(*sim.Request) (*http.Response, error) {
	return func(r *sim.Request) (*http.Response, error) {
		return r.FailWith(metav1.Status{
			Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "too many",
			Details: &metav1.StatusDetails{RetryAfterSeconds: seconds},
		})
	}
}

// TestL5_ARenewalWhoseAnswerIsLostIsOurs: the Lease has a version that we do not know, and is still
// ours.
func TestL5_ARenewalWhoseAnswerIsLostIsOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newStandby(t, api, "a")
		testkit.Pass(seconds(61))
		deaf := func(req *http.Request) (*http.Response, error) {
			answer, err := api.RoundTrip(req)
			if req.Method == http.MethodPut && err == nil && answer.StatusCode == http.StatusOK {
				return nil, fmt.Errorf("connection reset")
			}
			return answer, err
		}
		a.line.Store(&deaf)
		a.made()
		testkit.Pass(seconds(6))
		testkit.Equal(t, a.made(), "PUT PUT GET PUT PUT GET PUT")
		a.mend()
		testkit.Pass(seconds(2))
		testkit.Equal(t, a.made(), "PUT GET PUT")
		a.stop()
		ok(t, a.result())
		a.want(t, "acquired operator", "released operator: false")
	})
}

// TestL5_ARenewalThatIsAnsweredTooLateEndsTheWork: the answer comes before the timer that ends the
// term.
func TestL5_ARenewalThatIsAnsweredTooLateEndsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		jump := leaderelection.Suspend(a.Elector)
		stop, result := a.start(t, untilStopped)
		testkit.Pass(seconds(61))
		suspended := sync.OnceFunc(func() { jump(seconds(20)) })
		late := func(req *http.Request) (*http.Response, error) {
			answer, err := api.RoundTrip(req)
			if req.Method == http.MethodPut {
				suspended()
			}
			return answer, err
		}
		a.line.Store(&late)
		testkit.Pass(seconds(30))
		stop()
		ok(t, result())
		a.want(t, "acquired operator", "lost operator", "acquired operator", "released operator: false")
	})
}

// TestL2_AMachineThatSleptHasLostItsTerm: its monotonic clock stood still, its wall clock did not.
// It renews nothing.
func TestL2_AMachineThatSleptHasLostItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		var slept atomic.Int64
		leaderelection.SetWall(a.Elector, func() time.Time { return time.Now().Add(time.Duration(slept.Load())).Round(0) })
		var lost time.Time
		terms := 0
		stop, result := a.start(t, func(take, work context.Context) error {
			if terms++; terms > 1 {
				return untilStopped(take, work)
			}
			select {
			case <-work.Done():
			case <-take.Done():
				return nil
			}
			lost = time.Now()
			testkit.ErrorIs(t, context.Cause(work), leaderelection.ErrLost)
			return nil
		})
		testkit.Pass(seconds(61))
		slept.Store(int64(time.Hour))
		a.made()
		woke := time.Now()
		testkit.Pass(seconds(10))
		testkit.Equal(t, lost.IsZero(), false)
		testkit.AtMost(t, lost.Sub(woke), seconds(2))
		if made := a.made(); !strings.HasPrefix(made, "GET PUT") {
			t.Errorf("it has made %s: a term that was lost is renewed", made)
		}
		stop()
		ok(t, result())
		a.want(t, "acquired operator", "lost operator", "acquired operator", "released operator: false")
	})
}

// TestL1_AWallClockThatIsSetDoesNotShortenTheWait: the wait is for the Lease of a rival.
func TestL1_AWallClockThatIsSetDoesNotShortenTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		began := time.Now()
		give(api, "a")
		b := &standby{replica: newReplica(t, api, "b")}
		leaderelection.SetWall(b.Elector, func() time.Time {
			if time.Since(began) > seconds(5) {
				return time.Now().Add(time.Hour).Round(0)
			}
			return time.Now().Round(0)
		})
		b.begin(t)
		testkit.Pass(seconds(6))
		api.CutWatches() // so that it reads again
		testkit.Pass(time.Minute)
		b.leadsAfter(t, began, seconds(15), jitter)
	})
}

// TestL5_WhatWasLostForLackOfAnAnswerIsTakenBack: the record is our own, its work has ended, and no
// other process has written it.
func TestL5_WhatWasLostForLackOfAnAnswerIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newStandby(t, api, "a")
		testkit.Pass(seconds(61))
		a.cut()
		testkit.Pass(seconds(13))
		first := a.led
		a.mend()
		testkit.Pass(seconds(3))
		testkit.Equal(t, a.led.Equal(first), false, "it does not lead again")
		a.stop()
		ok(t, a.result())
		a.want(t, "acquired operator", "lost operator", "acquired operator", "released operator: false")
	})
}
