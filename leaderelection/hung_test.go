// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

// deafen leaves every request that is of interest without an answer, also after its context has
// ended, as an exec plugin does that hangs. free lets them all go on: they then reach the API
// server, although nothing waits for them.
func (r *replica) deafen(of func(*http.Request) bool) (free func()) {
	release := make(chan struct{})
	deaf := func(req *http.Request) (*http.Response, error) {
		if of(req) {
			<-release
			req = req.WithContext(context.WithoutCancel(req.Context()))
		}
		return r.api.RoundTrip(req)
	}
	r.line.Store(&deaf)
	return sync.OnceFunc(func() {
		r.mend()
		close(release)
	})
}

func every(*http.Request) bool { return true }

func ofMethod(method string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.Method == method }
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// noting adds trouble and campaigns to the notes of a replica.
func noting(r **replica) func(*leaderelection.Options) {
	return func(o *leaderelection.Options) {
		trouble := hook.On(func(e *hook.LeaseTrouble) {
			if e.Err == nil {
				(*r).note("no trouble")
				return
			}
			(*r).note("trouble")
		})
		o.Hook = hook.Join(o.Hook, trouble, hook.On(func(*hook.LeaseCampaign) { (*r).note("campaigning") }))
	}
}

// TestL5_ALossDoesNotWaitForARequest: a renewal ignores its context. The loss is reported when the
// term is over, and trouble before. Another replica leads. When the request returns, the former
// leader is a standby like any other, without a restart.
func TestL5_ALossDoesNotWaitForARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		var a *replica
		a = newReplica(t, api, "a", noting(&a))
		began := time.Now()
		var ended time.Duration
		stop, result := a.start(t, func(take, work context.Context) error {
			<-take.Done()
			if work.Err() != nil {
				ended = time.Since(began)
			}
			return nil
		})
		testkit.Pass(seconds(3))
		free := a.deafen(every)
		defer free()
		b := newReplica(t, api, "b")
		stopB, resultB := b.start(t, untilStopped)
		testkit.Pass(seconds(8)) // the renewal at 4 s was the first that hung
		a.want(t, "campaigning", "acquired operator", "trouble")
		testkit.Pass(seconds(3))
		a.want(t, "campaigning", "acquired operator", "trouble", "lost operator")
		testkit.Equal(t, ended, seconds(14), "the work ends after")
		ok(t, a.Check(nil))
		testkit.Pass(time.Minute)
		b.want(t, "a leads operator", "acquired operator")
		testkit.ErrorContains(t, a.Check(nil), "a request for the Lease default/operator has not returned since", "Check returns")
		testkit.AtMost(t, len(strings.Fields(a.made())), 8)
		free()
		testkit.Pass(seconds(3))
		ok(t, a.Check(nil))
		stopB()
		ok(t, resultB())
		testkit.Pass(seconds(1))
		a.want(t, "campaigning", "acquired operator", "trouble", "lost operator", "campaigning", "b leads operator", "no trouble", "acquired operator")
		stop()
		ok(t, result())
	})
}

// TestL5_OneRequestThatHangsCostsNoTerm: other requests are answered meanwhile.
func TestL5_OneRequestThatHangsCostsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		stop, result := a.start(t, untilStopped)
		testkit.Pass(seconds(3))
		var once sync.Once
		free := a.deafen(func(*http.Request) (first bool) {
			once.Do(func() { first = true })
			return first
		})
		defer free()
		testkit.Pass(time.Hour)
		a.want(t, "acquired operator")
		ok(t, a.Check(nil))
		free()
		testkit.Pass(seconds(5))
		stop()
		ok(t, result())
		a.want(t, "acquired operator", "released operator: false")
	})
}

// TestL1_AnAnswerThatNothingWaitsForWinsNothing: the acquisition of a standby hangs, and is stored
// when its term would be over. The standby does not lead by it.
func TestL1_AnAnswerThatNothingWaitsForWinsNothing(t *testing.T) {
	for _, missing := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			api := sim.NewServer(sim.Leases)
			if !missing {
				give(api, "b") // it crashes
			}
			a := newReplica(t, api, "a")
			free := a.deafen(func(r *http.Request) bool { return r.Method != http.MethodGet })
			defer free()
			stop, result := a.start(t, func(take, work context.Context) error {
				testkit.AtMost(t, time.Since(lease(t, api).Spec.RenewTime.Time), time.Second)
				testkit.Equal(t, holder(t, api), "a")
				return untilStopped(take, work)
			})
			testkit.Pass(time.Minute)
			testkit.NotEqual(t, a.Check(nil), nil, "Check passes although no write has returned")
			free()
			testkit.Pass(time.Minute)
			testkit.Equal(t, holder(t, api), "a", "leads")
			stop()
			ok(t, result())
		})
	}
}

// TestL4_AReleaseThatHangsEndsRun: with an error that names the request, and has its stack. The
// release that arrives late does not free the Lease of the next leader.
func TestL4_AReleaseThatHangsEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		stop, result := a.start(t, untilStopped)
		testkit.Pass(seconds(1))
		free := a.deafen(every)
		defer free()
		began := time.Now()
		stop()
		err := result()
		testkit.AtMost(t, time.Since(began), 8*time.Second)
		for _, part := range []string{"a request for the Lease default/operator has not returned since", "leaderelection_test.(*replica).RoundTrip"} {
			testkit.ErrorContains(t, err, part, "Run returns")
		}
		a.want(t, "acquired operator", "released operator: true")
		b := newReplica(t, api, "b")
		stopB, resultB := b.start(t, untilStopped)
		testkit.Pass(seconds(20))
		free()
		testkit.Pass(seconds(1))
		b.want(t, "a leads operator", "acquired operator")
		testkit.Equal(t, holder(t, api), "b", "holds the Lease")
		stopB()
		ok(t, resultB())
	})
}

// TestM1_AStandbyWhoseRequestHangsStops: in each phase of a campaign.
func TestM1_AStandbyWhoseRequestHangsStops(t *testing.T) {
	for name, of := range map[string]func(*http.Request) bool{
		"get": every, "create": ofMethod(http.MethodPost), "update": ofMethod(http.MethodPut), "watch": isWatch,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				if name != "create" {
					give(api, "b")
				}
				a := newReplica(t, api, "a")
				free := a.deafen(of)
				defer free()
				stop, result := a.start(t, untilStopped)
				testkit.Pass(seconds(15.5))
				began := time.Now()
				stop()
				err := result()
				testkit.AtMost(t, time.Since(began), 8*time.Second)
				testkit.ErrorContains(t, err, "has not returned since", "Run returns")
				free()
				synctest.Wait()
			})
		})
	}
}

// endless is a body that sends nothing, and whose Close does not return before it is freed.
type endless struct {
	io.ReadCloser

	free <-chan struct{}
}

func (e endless) Read([]byte) (int, error) {
	<-e.free
	return 0, io.EOF
}

func (e endless) Close() error {
	<-e.free
	return e.ReadCloser.Close()
}

// TestL6_AWatchThatDoesNotEndDelaysNoTakeover: neither one that hangs before its answer, nor one
// whose stream ignores the end of its context.
func TestL6_AWatchThatDoesNotEndDelaysNoTakeover(t *testing.T) {
	for _, streams := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			api := sim.NewServer(sim.Leases)
			began := time.Now()
			give(api, "b")
			a := &standby{replica: newReplica(t, api, "a")}
			free := make(chan struct{})
			deaf := func(req *http.Request) (*http.Response, error) {
				switch {
				case !isWatch(req):
				case streams:
					resp, err := api.RoundTrip(req)
					if err == nil {
						resp.Body = endless{resp.Body, free}
					}
					return resp, err
				default:
					<-free
				}
				return api.RoundTrip(req)
			}
			a.line.Store(&deaf)
			a.begin(t)
			testkit.Pass(time.Minute)
			ok(t, a.Check(nil))
			close(free)
			synctest.Wait()
			a.leadsAfter(t, began, seconds(15), jitter+seconds(2.5))
		})
	}
}

// TestL5_Observe_ALossDoesNotWaitForARequest (L5): client-go's elector goes on when its
// RenewDeadline is over, although its request has not returned.
func TestL5_Observe_ALossDoesNotWaitForARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newHost(t, api, "a")
		_, ended := a.start(t, untilStopped)
		testkit.Pass(seconds(3))
		free := a.deafen(every)
		defer free()
		testkit.Pass(seconds(11.5))
		a.want(t, "acquired operator", "lost operator")
		testkit.Pass(seconds(10)) // client-go tries to release the Lease
		testkit.Equal(t, done(ended), true, "client-go's elector waits for the request")
		testkit.Pass(time.Minute)
		testkit.ErrorContains(t, a.Check(nil), "a request for the Lease default/operator has not returned since", "Check returns")
		free()
		<-ended
		a.result()
		synctest.Wait()
		ok(t, a.Check(nil))
	})
}

// TestL5_TheLossIsReportedWhileAHookIsSlow: a timer reports it.
func TestL5_TheLossIsReportedWhileAHookIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		free := make(chan struct{})
		a := newReplica(t, api, "a", func(o *leaderelection.Options) {
			o.Hook = hook.Join(o.Hook, hook.On(func(*hook.LeaseRenewal) { <-free }))
		})
		ctx, stop := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx, untilStopped) }()
		testkit.Pass(seconds(14)) // the renewal at 2 s was the last one
		a.want(t, "acquired operator", "lost operator")
		stop()
		close(free)
		ok(t, <-done)
	})
}
