// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// standby is a replica that campaigns.
type standby struct {
	*replica
	led    time.Time // when it began to lead
	stop   func()
	result func() error
}

// newStandby starts a replica that campaigns until it is stopped.
func newStandby(t *testing.T, api *sim.Server, identity string) *standby {
	t.Helper()
	s := &standby{replica: newReplica(t, api, identity)}
	s.begin(t)
	return s
}

func (s *standby) begin(t *testing.T) {
	s.stop, s.result = s.start(t, func(take, work context.Context) error {
		s.led = time.Now()
		return untilStopped(take, work)
	})
}

// leadsAfter checks that the standby leads after this time, at most a jitter later, and stops it.
func (s *standby) leadsAfter(t *testing.T, from time.Time, d, jitter time.Duration) {
	t.Helper()
	if took := s.led.Sub(from); s.led.IsZero() || took < d || took > d+jitter {
		t.Errorf("it leads after %s, want %s to %s", took, d, d+jitter)
	}
	s.stop()
	ok(t, s.result())
}

const jitter = 100 * time.Millisecond // a twentieth of the RetryPeriod

// TestL1_OnlyTheRecordThatWasTimedIsTaken: the holder renews it while the request of the rival is
// on its way.
func TestL1_OnlyTheRecordThatWasTimedIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		give(api, "a")
		b := newStandby(t, api, "b")
		var renewed time.Time
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if isLease(r, "update") && renewed.IsZero() {
				renewed = time.Now()
				give(api, "a")
			}
			return nil, nil
		})
		testkit.Pass(20 * time.Second)
		if renewed.IsZero() || !b.led.IsZero() || holder(t, api) != "a" {
			t.Fatalf("renewed at %s; b leads since %s", renewed, b.led)
		}
		testkit.Pass(20 * time.Second)
		b.leadsAfter(t, renewed, 15*time.Second, jitter)
	})
}

// TestL1_WhatIsDoneByHandDoesNotShortenTheWait: the holder still trusts its term.
func TestL1_WhatIsDoneByHandDoesNotShortenTheWait(t *testing.T) {
	spec := func(change func(*coordinationv1.LeaseSpec)) func(*testing.T, *sim.Server) {
		return func(t *testing.T, api *sim.Server) { edit(t, api, change) }
	}
	second := func(n int32) func(*coordinationv1.LeaseSpec) {
		return func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = &n }
	}
	for name, test := range map[string]struct {
		change func(*testing.T, *sim.Server)
		wait   time.Duration // since the record that counts was seen
	}{
		"shortened":   {spec(second(1)), seconds(20)},
		"none":        {spec(second(0)), seconds(20)},
		"negative":    {spec(second(-5)), seconds(20)},
		"no duration": {spec(func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = nil }), seconds(20)},
		"no times":    {spec(func(s *coordinationv1.LeaseSpec) { s.RenewTime, s.AcquireTime = nil, nil }), seconds(20)},
		"old times": {spec(func(s *coordinationv1.LeaseSpec) {
			s.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}
		}), seconds(20)},
		"holder removed": {spec(func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = nil }), seconds(20)},
		"holder emptied": {spec(func(s *coordinationv1.LeaseSpec) { *s.HolderIdentity = "" }), seconds(20)},
		"all removed":    {spec(func(s *coordinationv1.LeaseSpec) { *s = coordinationv1.LeaseSpec{} }), seconds(20)},
		// A new one is held for as long as the deleted one was respected.
		"deleted":       {func(_ *testing.T, api *sim.Server) { api.Remove(sim.Leases, "default", "operator") }, seconds(30)},
		"created again": {remake, seconds(20)},
		"lengthened":    {spec(second(60)), seconds(65)},
	} {
		for _, how := range []string{"seen by a watch", "polled"} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(sim.Leases)
					late := jitter
					if name == "deleted" {
						late += jitter // it waits twice
					}
					if how == "polled" {
						late += 2 * seconds(2.4) // a change is seen later, and so is the new Lease
						api.Intercept(func(r *sim.Request) (*http.Response, error) {
							if isLease(r, "watch") {
								return r.Fail(http.StatusForbidden, "no right to watch")
							}
							return nil, nil
						})
					}
					began := time.Now()
					give(api, "a")
					b := newStandby(t, api, "b")
					testkit.Pass(5 * time.Second)
					test.change(t, api)
					testkit.Pass(2 * time.Minute)
					b.leadsAfter(t, began, test.wait, late)
				})
			})
		}
	}
}

func TestL7_ARecordIsLeftAloneForItsDuration(t *testing.T) {
	for _, n := range []int32{1, 14, 15, 16, 137, math.MaxInt32} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				give(api, "a")
				edit(t, api, func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = &n })
				began := time.Now()
				b := newStandby(t, api, "b")
				testkit.Pass(10 * time.Minute)
				if n < math.MaxInt32 {
					b.leadsAfter(t, began, max(15, time.Duration(n))*time.Second, jitter)
					return
				}
				b.stop()
				ok(t, b.result())
				testkit.Equal(t, b.led.IsZero(), true, "it leads")
			})
		})
	}
}

// TestL6_AHandOverTakesOneEventAndOneWrite: before it, a standby has a watch and makes no request.
func TestL6_AHandOverTakesOneEventAndOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newStandby(t, api, "a")
		testkit.Pass(time.Second)
		b := newStandby(t, api, "b")
		testkit.Pass(time.Minute)
		testkit.Equal(t, b.made(), "GET WATCH")
		testkit.Equal(t, b.led.IsZero(), true, "both lead")
		a.made()
		a.stop()
		ok(t, a.result())
		released := time.Now()
		synctest.Wait()
		testkit.Equal(t, a.made(), "PUT", "a has released with")
		testkit.Equal(t, b.made(), "PUT", "b has acquired with")
		b.leadsAfter(t, released, 0, 0)
		b.want(t, "a leads operator", "acquired operator", "released operator: false")
	})
}

func TestL6_ACrashTakesTheLeaseDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newStandby(t, api, "a")
		testkit.Pass(time.Second)
		var all []*standby
		for _, name := range []string{"b", "c", "d"} {
			all = append(all, newStandby(t, api, name))
		}
		testkit.Pass(seconds(60))
		a.cut()
		renewed := lease(t, api).Spec.RenewTime.Time
		testkit.Pass(30 * time.Second)
		led := 0
		for _, s := range all {
			if !s.led.IsZero() {
				led++
				if took := s.led.Sub(renewed); took < seconds(15) || took > seconds(15)+jitter {
					t.Errorf("it leads %s after the last renewal", took)
				}
			}
		}
		testkit.Equal(t, led, 1, "lead")
		a.mend()
		testkit.Pass(seconds(5))
		a.want(t, "acquired operator", "lost operator", holder(t, api)+" leads operator")
		for _, s := range append(all, a) {
			s.stop()
		}
		for _, s := range append(all, a) {
			ok(t, s.result())
		}
	})
}

// TestL6_WithoutAWatchItIsOneRetryPeriodMore: that holds for any error, and the Lease is watched
// again when that is possible.
func TestL6_WithoutAWatchItIsOneRetryPeriodMore(t *testing.T) {
	for name, answer := range map[string]func(*sim.Request) (*http.Response, error){
		"forbidden":  func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no right") },
		"error":      func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusInternalServerError, "oh") },
		"hung":       func(r *sim.Request) (*http.Response, error) { return r.Hang() },
		"refused":    func(r *sim.Request) (*http.Response, error) { return r.Refuse() },
		"ends early": func(r *sim.Request) (*http.Response, error) { return r.Send("") },
		"no events": func(r *sim.Request) (*http.Response, error) {
			return r.Send(`{"type":"MODIFIED","object":{"kind":"Pod"}}`)
		},
		"no JSON": func(r *sim.Request) (*http.Response, error) { return r.Send("<html>") },
		"410":     func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusGone, "too old") },
		"410 as sent": func(r *sim.Request) (*http.Response, error) {
			return r.Send(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newStandby(t, api, "a")
				testkit.Pass(time.Second)
				trouble := func(r *sim.Request) (*http.Response, error) {
					if isLease(r, "watch") {
						return answer(r)
					}
					return nil, nil
				}
				api.Intercept(trouble)
				b := newStandby(t, api, "b")
				testkit.Pass(time.Minute)
				slow := seconds(2.4)
				if name == "hung" {
					slow += seconds(5) // the timeout
				}
				if n := api.Count("watch", sim.Leases); n > 30 || name == "forbidden" && n > 2 {
					t.Errorf("%d watches in a minute", n)
				}
				stopped := time.Now()
				a.stop()
				ok(t, a.result())
				testkit.Pass(10 * time.Second)
				testkit.Equal(t, b.led.IsZero(), false)
				testkit.AtMost(t, b.led.Sub(stopped), slow)
				api.Intercept(nil)
				a.begin(t)
				testkit.Pass(2 * time.Minute)
				testkit.Equal(t, api.Watches(), 1)
				api.Intercept(trouble)
				api.CutWatches()
				b.cut()
				renewed := lease(t, api).Spec.RenewTime.Time
				testkit.Pass(time.Minute)
				if took := a.led.Sub(renewed); took < seconds(15) || took > seconds(15)+2*slow {
					t.Errorf("a leads %s after the last renewal of b", took)
				}
				a.stop()
				ok(t, a.result())
				b.stop()
				ok(t, b.result())
			})
		})
	}
}

// TestL6_AWatchThatIsSilentCostsOneWrite: a rival renews, and the watch sends no event.
func TestL6_AWatchThatIsSilentCostsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newStandby(t, api, "a")
		testkit.Pass(time.Second)
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if isLease(r, "watch") {
				return r.SendAndHang("")
			}
			return nil, nil
		})
		b := newStandby(t, api, "b")
		testkit.Pass(seconds(30))
		testkit.Equal(t, b.made(), "GET WATCH PUT GET WATCH")
		api.Intercept(nil)
		testkit.Pass(time.Minute)
		a.stop()
		ok(t, a.result())
		released := time.Now()
		testkit.Pass(time.Second)
		b.leadsAfter(t, released, 0, 0)
	})
}

// TestL1_ANamesakeIsARival: another process, or an earlier one, has the same identity.
func TestL1_ANamesakeIsARival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		began := time.Now()
		giveAt(api, "a", time.Now().Add(-time.Minute))
		a := newStandby(t, api, "a")
		testkit.Pass(time.Minute)
		a.leadsAfter(t, began, 15*time.Second, jitter)
	})
}

// TestL1_AnAcquisitionThatWasNotAnsweredIsOurs: no other process can lead, so there is no wait.
func TestL1_AnAcquisitionThatWasNotAnsweredIsOurs(t *testing.T) {
	// A watch reports it.
	for how, want := range map[string]time.Duration{"a new Lease": seconds(2), "one that is free": 0} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				if how != "a new Lease" {
					give(api, "")
				}
				a := newReplica(t, api, "a")
				deaf := func(req *http.Request) (*http.Response, error) {
					answer, err := api.RoundTrip(req)
					if err == nil && (req.Method == http.MethodPut || req.Method == http.MethodPost) {
						answer, err = nil, fmt.Errorf("connection reset")
						a.mend()
					}
					return answer, err
				}
				a.line.Store(&deaf)
				began := time.Now()
				s := &standby{replica: a}
				s.begin(t)
				testkit.Pass(time.Minute)
				s.leadsAfter(t, began, want, seconds(0.4))
			})
		})
	}
}

// TestRetryAfter: a standby waits as long as the API server asks for, within a limit.
func TestRetryAfter(t *testing.T) {
	for asked, want := range map[int32]time.Duration{1: seconds(2), 5: seconds(5), 3600: seconds(15)} {
		for _, verb := range []string{"get", "create"} {
			t.Run(fmt.Sprintf("%d s to a %s", asked, verb), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(sim.Leases)
					n := 0
					api.Intercept(func(r *sim.Request) (*http.Response, error) {
						if n++; isLease(r, verb) && n < 3 {
							return r.FailWith(metav1.Status{
								Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "too many",
								Details: &metav1.StatusDetails{RetryAfterSeconds: asked},
							})
						}
						return nil, nil
					})
					began := time.Now()
					a := newStandby(t, api, "a")
					testkit.Pass(time.Minute)
					times := time.Duration(1)
					if verb == "get" {
						times = 2
					}
					a.leadsAfter(t, began, times*want, times*seconds(0.4))
				})
			})
		}
	}
}

// TestTheLeaseIsAsClientGoWritesIt: its other fields and its metadata do not change.
func TestTheLeaseIsAsClientGoWritesIt(t *testing.T) {
	for before, want := range map[int32]int32{0: 1, 7: 8, -3: 1, math.MaxInt32: 1} {
		synctest.Test(t, func(t *testing.T) {
			api := sim.NewServer(sim.Leases)
			give(api, "")
			strategy := coordinationv1.OldestEmulationVersion
			edit(t, api, func(s *coordinationv1.LeaseSpec) { s.LeaseTransitions, s.Strategy = &before, &strategy })
			label(t, api)
			a := newStandby(t, api, "a")
			testkit.Pass(seconds(5))
			l := lease(t, api)
			if n := l.Spec.LeaseTransitions; n == nil || *n != want || l.Labels["at"] == "" || *l.Spec.Strategy != strategy {
				t.Errorf("of %d the Lease has made %+v %+v", before, l.Labels, l.Spec)
			}
			testkit.Equal(t, l.Spec.RenewTime.Sub(l.Spec.AcquireTime.Time), seconds(4))
			testkit.Equal(t, *l.Spec.LeaseDurationSeconds, 15)
			a.stop()
			ok(t, a.result())
			testkit.Equal(t, *lease(t, api).Spec.LeaseTransitions, want, "after the release it has transitions")
		})
	}
}

// TestEachFactIsOneLine: each event is one line of the log, also if it repeats.
func TestEachFactIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newStandby(t, api, "a")
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if isLease(r, "watch") {
				return r.Fail(http.StatusForbidden, "no right to watch")
			}
			return nil, nil
		})
		testkit.Pass(seconds(1))
		b := newReplica(t, api, "b")
		log := &bytes.Buffer{}
		noTime := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "err" {
				return slog.Attr{}
			}
			return a
		}
		logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: noTime}))
		ctx, stop := context.WithCancel(logr.NewContextWithSlogLogger(t.Context(), logger))
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx, untilStopped) }()
		testkit.Pass(5 * time.Minute)
		b.cut()
		testkit.Pass(time.Minute)
		b.mend()
		testkit.Pass(time.Minute)
		a.stop()
		ok(t, a.result())
		testkit.Pass(seconds(3))
		b.cut()
		testkit.Pass(seconds(10))
		b.mend()
		testkit.Pass(time.Minute)
		stop()
		ok(t, <-done)
		const want = `level=WARN msg="the lease cannot be watched, so it is polled: a takeover takes longer" lease=default/operator every=2s
level=WARN msg="the lease cannot be read" lease=default/operator
level=INFO msg="the lease can be read and written again" lease=default/operator
level=WARN msg="the lease was not renewed" lease=default/operator
level=INFO msg="the lease can be read and written again" lease=default/operator
`
		testkit.Equal(t, log.String(), want)
	})
}
