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
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// stubborn ignores its context and waits for free.
func stubborn(free <-chan struct{}) { <-free }

func wantParts(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("Run returned nil")
	}
	rest := err.Error()
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("the error does not go on with %q:\n%v", part, err)
		}
		rest = after
	}
}

func TestM1_WhatDoesNotStopIsNamedWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		m := newManager(newAPI(), func(o *manager.Options) { o.Grace = 10 * time.Second })
		m.AddEverywhere("polite", func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		m.AddEverywhere("stubborn", func(context.Context) error {
			stubborn(free)
			return nil
		})
		m.AddEverywhere("a stubborn child's parent", func(ctx context.Context) error {
			go stubborn(free)
			stubborn(free)
			return nil
		})
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		began := time.Now()
		stop()
		err := result()
		if took := time.Since(began); took > 13*time.Second || took < 12*time.Second {
			t.Errorf("Run returned after %s, want the grace time of 10s and at most 3s", took)
		}
		wantParts(t, err, "a stubborn child's parent has not stopped in time:\n", "1 @", "manager_test.stubborn", "1 @", "manager_test.stubborn",
			"stubborn has not stopped in time:\n", "manager_test.stubborn", "stop_test.go")
		if strings.Contains(err.Error(), "polite") || strings.Contains(err.Error(), "cache") {
			t.Errorf("the error names what has stopped:\n%v", err)
		}
	})
}

func TestM1_AStuckReconcileIsNamedWithItsStack(t *testing.T) {
	for name, options := range map[string]func(*manager.Options){"elected": elected, "alone": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				free := make(chan struct{})
				defer close(free)
				api := newAPI()
				put(api, "a")
				m := newManager(api, options)
				configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
					stubborn(free)
					return controller.Result{}, nil
				})
				stop, result := start(t, m)
				testkit.Pass(time.Second)
				began := time.Now()
				stop()
				err := result()
				if took := time.Since(began); took > 28*time.Second || took < 27*time.Second {
					t.Errorf("Run returned after %s, want the grace time of 25s and at most 3s", took)
				}
				wantParts(t, err, `controller "website" has not stopped in time (it reconciles default/a for `, "manager_test.stubborn", "leading has not stopped in time:")
				if strings.Contains(err.Error(), "sources of") {
					t.Errorf("the error names what has stopped:\n%v", err)
				}
				if options != nil && holder(api) == "" {
					t.Error("the lease is released although the work has not stopped")
				}
			})
		})
	}
}

func TestM1_IdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{RoundTripper: newAPI()}
		cfg := config(nil)
		cfg.Transport = l
		m := manager.New(cfg, manager.Options{Name: "test", Logger: silent})
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		testkit.Equal(t, l.closed.Load(), 0, "closed while it runs")
		stop()
		ok(t, result())
		testkit.NotEqual(t, l.closed.Load(), 0, "idle connections are not closed")
	})
}

func TestM2_StopIsTheReverseOfStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		api := newAPI()
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			o.Grace = time.Minute
		})
		configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		})
		c := newFake("fake", &d)
		c.synced = make(chan struct{})
		c.warm = func(ctx context.Context) error {
			d.note("warm starts")
			time.Sleep(time.Second)
			close(c.synced)
			<-ctx.Done()
			testkit.NotEqual(t, api.Watches(), 0, "the cache stops before what runs everywhere")
			d.note("warm ends")
			return nil
		}
		m.AddLeaderOnly("leader only", d.until("leader only", 5*time.Second))
		m.Add(c)
		m.AddEverywhere("everywhere", func(ctx context.Context) error {
			err := d.until("everywhere", 5*time.Second)(ctx)
			testkit.Equal(t, holder(api), "", "the lease is held when all of the term has stopped")
			return err
		})
		stop, result := start(t, m)
		testkit.Pass(500 * time.Millisecond)
		testkit.Equal(t, isReady(m), false)
		testkit.Equal(t, holder(api), "")
		testkit.Pass(time.Second)
		testkit.Equal(t, isReady(m), true)
		testkit.NotEqual(t, holder(api), "")
		testkit.Pass(10 * time.Second)
		d.mu.Lock()
		clear(d.events[:2]) // functions of one stage start in any order
		clear(d.events[2:4])
		d.mu.Unlock()
		stop()
		ok(t, result())
		d.want(t, "", "", "", "", "lead fake ends", "leader only ends", "warm ends", "everywhere ends")
		testkit.Equal(t, api.Watches(), 0)
	})
}

func TestM3_StopInAnyPhase(t *testing.T) {
	refuse := func(r *sim.Request) (*http.Response, error) { return r.Refuse() }
	hang := func(r *sim.Request) (*http.Response, error) { return r.Hang() }
	forbid := func(r *sim.Request) (*http.Response, error) {
		if r.Verb == "list" || r.Verb == "watch" {
			return r.Fail(http.StatusForbidden, "no right")
		}
		return nil, nil
	}
	for name, test := range map[string]struct {
		options   func(*manager.Options)
		setUp     func(api *sim.Server)
		reconcile controller.Func[types.NamespacedName]
		after     time.Duration // time until the stop
		late      func(api *sim.Server)
		atMost    time.Duration
	}{
		"at once":                           {},
		"at once, elected":                  {options: elected},
		"caches that never sync":            {setUp: func(api *sim.Server) { api.Intercept(forbid) }, after: time.Minute},
		"caches that never sync, elected":   {options: elected, setUp: func(api *sim.Server) { api.Intercept(forbid) }, after: time.Minute},
		"the same, and leading":             {options: elected, setUp: func(api *sim.Server) { api.Intercept(forbid) }, after: 5 * time.Minute},
		"the API server refuses":            {setUp: func(api *sim.Server) { api.Intercept(refuse) }, after: time.Minute},
		"the API server refuses, elected":   {options: elected, setUp: func(api *sim.Server) { api.Intercept(refuse) }, after: 5 * time.Minute},
		"the API server hangs":              {setUp: func(api *sim.Server) { api.Intercept(hang) }, after: time.Minute},
		"the API server hangs, elected":     {options: elected, setUp: func(api *sim.Server) { api.Intercept(hang) }, after: 5 * time.Minute},
		"kinds that are not served":         {setUp: func(api *sim.Server) { api.Withdraw(sim.ConfigMaps, sim.Leases) }, options: elected, after: 5 * time.Minute},
		"campaigning":                       {options: elected, setUp: giveLease, after: 10 * time.Second},
		"leading":                           {options: elected, after: time.Minute},
		"leading, and then it hangs":        {options: elected, after: time.Minute, late: func(api *sim.Server) { api.Intercept(hang) }, atMost: 2 * time.Second},
		"leading, and then it refuses":      {options: elected, after: time.Minute, late: func(api *sim.Server) { api.Intercept(refuse) }},
		"leading with a slow reconcile":     {options: elected, reconcile: slow, after: time.Minute, atMost: 25 * time.Second},
		"slow, and then it hangs":           {options: elected, reconcile: slow, after: time.Minute, late: func(api *sim.Server) { api.Intercept(hang) }, atMost: 27 * time.Second},
		"a slow reconcile without election": {reconcile: slow, after: time.Minute, atMost: 25 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				put(api, "a")
				if test.setUp != nil {
					test.setUp(api)
				}
				if test.reconcile == nil {
					test.reconcile = func(context.Context, types.NamespacedName) (controller.Result, error) {
						return controller.Result{}, nil
					}
				}
				m := newManager(api, test.options)
				configMaps(m, "website", test.reconcile)
				stop, result := start(t, m)
				testkit.Pass(test.after)
				if test.late != nil {
					test.late(api)
				}
				began := time.Now()
				stop()
				ok(t, result())
				testkit.AtMost(t, time.Since(began), test.atMost)
				testkit.Equal(t, api.Watches(), 0)
			})
		})
	}
}

// slow runs until it is cancelled.
func slow(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
	<-ctx.Done()
	return controller.Result{}, ctx.Err()
}

// giveLease creates the lease of a replica that lost its network.
func giveLease(api *sim.Server) {
	other := newManager(api, elected)
	ctx, cancel := context.WithCancel(context.Background())
	other.AddLeaderOnly("ends the other, which keeps its lease", func(context.Context) error {
		api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		cancel()
		return nil
	})
	_ = other.Run(ctx)
	api.Intercept(nil)
	if holder(api) == "" {
		panic("nobody holds the lease")
	}
}

func TestM3_TheReconcileLearnsWhyItIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		m := newManager(api, elected)
		var cause error
		var after time.Duration
		var stopped time.Time
		configMaps(m, "website", func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			<-ctx.Done()
			cause, after = context.Cause(ctx), time.Since(stopped)
			return controller.Result{}, ctx.Err()
		})
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		stopped = time.Now()
		stop()
		ok(t, result())
		testkit.ErrorContains(t, cause, "the grace time of 25s is over")
		testkit.Equal(t, after, 25*time.Second)
		testkit.Equal(t, holder(api), "", "holds the lease")
	})
}

func TestM3_TheFailureOfOneStopsAllWithinTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		m := newManager(api, elected)
		configMaps(m, "website", slow)
		m.AddLeaderOnly("reporter", func(context.Context) error {
			time.Sleep(time.Minute)
			return errors.New("boom")
		})
		began := time.Now()
		_, result := start(t, m)
		testkit.Equal(t, fmt.Sprint(result()), "reporter: boom", "Run returned")
		testkit.Equal(t, time.Since(began)-time.Minute, 25*time.Second, "the time until the stop")
	})
}

// TestStop_TheLogSaysWhy: the cause is in the log at the start of the stop.
func TestStop_TheLogSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		fails error
		want  string
	}{
		"it was asked for":     {nil, `level=INFO msg=stopping cause="context canceled" grace=25s`},
		"something has failed": {errors.New("no more"), `level=ERROR msg="stopping, because something has failed" err="broken: no more" grace=25s`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testkit.Buffer
				m := newManager(newAPI(), func(o *manager.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				m.AddEverywhere("slow", func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(10 * time.Second)
					return nil
				})
				fail := make(chan struct{})
				m.AddEverywhere("broken", func(ctx context.Context) error {
					select {
					case <-fail:
						return c.fails
					case <-ctx.Done():
						return nil
					}
				})
				stop, result := start(t, m)
				synctest.Wait()
				if c.fails != nil {
					close(fail)
				} else {
					stop()
				}
				synctest.Wait() // slow still runs
				testkit.Contains(t, log.String(), c.want, fmt.Sprintf("the log does not say %s", c.want))
				testkit.ErrorIs(t, result(), c.fails, "Run returned")
			})
		})
	}
}
