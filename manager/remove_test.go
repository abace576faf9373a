// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// TestM6_Remove: a removed controller stops, the others continue, and another one can take its
// name, in this term and the next.
func TestM6_Remove(t *testing.T) {
	for name, options := range map[string]func(*manager.Options){"elected": elected, "alone": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var keys []string
				api := newAPI()
				m := newManager(api, options)
				maps := cache.For[*corev1.ConfigMap](m.Cache())
				add := func(name, as string) *controller.Controller[types.NamespacedName] {
					c := controller.New(name, controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
						mu.Lock()
						defer mu.Unlock()
						keys = append(keys, as+" "+key.Name)
						return controller.Result{}, nil
					}), controller.Options{Logger: silent})
					c.Watch(source.Kind(maps, handler.Self()))
					m.Add(c)
					return c
				}
				first := add("website", "first")
				add("other", "other")
				stop, result := start(t, m)
				testkit.Pass(time.Minute)
				put(api, "a")
				testkit.Pass(time.Minute)
				ok(t, m.Remove(t.Context(), first))
				put(api, "b")
				testkit.Pass(time.Minute)
				add("website", "second")
				testkit.Pass(time.Minute)
				slices.Sort(keys)
				testkit.SlicesEqual(t, keys, []string{"first a", "other a", "other b", "second a", "second b"}, "reconciled")
				if name == "elected" {
					keys = nil
					api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
					testkit.Pass(time.Minute)
					api.Intercept(nil)
					testkit.Pass(time.Minute)
					put(api, "c")
					testkit.Pass(time.Minute)
					slices.Sort(keys)
					if slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, "first") }) || !slices.Contains(keys, "second c") {
						t.Errorf("in the next term: %q", keys)
					}
				}
				stop()
				ok(t, result())
			})
		})
	}
}

// TestM6_RemoveWaits: Remove waits for running Reconciles, which have the grace time, then for the
// sources, until its context ends.
func TestM6_RemoveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		m := newManager(newAPI(), nil)
		c, stuck := newFake("website", &d), newFake("stuck", &diary{})
		c.lead = func(take, work context.Context) error {
			<-take.Done()
			d.note("no new key")
			<-work.Done()
			d.note("lead ends: %v", context.Cause(work))
			return nil
		}
		c.warm = d.until("warm", time.Second)
		stuck.warm = (&diary{}).until("", time.Hour)
		m.Add(c)
		m.Add(stuck)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		began := time.Now()
		ok(t, m.Remove(t.Context(), c))
		testkit.Equal(t, time.Since(began), 26*time.Second, "Remove returned after")
		d.want(t, "warm starts", "no new key", "lead ends: the grace time of 25s is over: context canceled", "warm ends")
		testkit.Equal(t, fmt.Sprint(m.Remove(t.Context(), c)), `no controller "website" was added`, "twice")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := m.Remove(ctx, stuck); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), `controller "stuck": it has not stopped yet`) {
			t.Errorf("got %v", err)
		}
		testkit.Pass(2 * time.Hour)
		stop()
		ok(t, result())
		testkit.NotEqual(t, m.Remove(t.Context(), nil), nil, "nothing was removed")
	})
}

// TestM6_RemoveBeforeRun: a removed controller is neither started nor validated, and delays
// nothing.
func TestM6_RemoveBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		m := newManager(newAPI(), nil)
		before, while := newFake("before", &d), newFake("while", &d)
		before.wrong = errors.New("boom")
		while.synced = make(chan struct{}) // never
		m.Add(before)
		m.Add(while)
		ok(t, m.Remove(t.Context(), before))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		testkit.Equal(t, isReady(m), false, "ready before its controller")
		ok(t, m.Remove(t.Context(), while))
		testkit.Pass(time.Minute)
		testkit.Equal(t, isReady(m), true, "not ready: it waits for a controller that was removed")
		slices.Sort(d.events[:2])
		d.want(t, "lead while starts", "warm while starts", "lead while ends", "warm while ends")
		stop()
		ok(t, result())
	})
}

// TestM6_WhatIsRemovedIsFreed: the manager keeps no reference to a removed controller.
func TestM6_WhatIsRemovedIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), elected)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		add := func() weak.Pointer[controller.Controller[types.NamespacedName]] {
			c := controller.New("website", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
				return controller.Result{}, nil
			}), controller.Options{Logger: silent})
			c.Watch(source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), handler.Self()))
			m.Add(c)
			testkit.Pass(time.Minute)
			ok(t, m.Remove(t.Context(), c))
			return weak.Make(c)
		}
		c := add()
		testkit.Pass(time.Minute) // no timer of it is left
		runtime.GC()
		testkit.Equal(t, c.Value(), nil, "something keeps a controller that was removed")
		stop()
		ok(t, result())
	})
}

// TestM6_RemoveAnother: Remove of a controller that was not added does not affect its namesake.
func TestM6_RemoveAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		m := newManager(newAPI(), nil)
		c := newFake("website", &d)
		m.Add(c)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		testkit.Equal(t, fmt.Sprint(m.Remove(t.Context(), newFake("website", &d))), `no controller "website" was added`, "another")
		for _, none := range []manager.Controller{nil, (*controller.Controller[int])(nil)} {
			testkit.Equal(t, fmt.Sprint(m.Remove(t.Context(), none)), "Remove: the controller is nil")
		}
		slices.Sort(d.events)
		d.want(t, "lead website starts", "warm website starts")
		ok(t, m.Remove(t.Context(), c))
		stop()
		ok(t, result())
	})
}

// TestM6_WhatIsRemovedMayFail: Remove returns the error of the controller; Run continues.
func TestM6_WhatIsRemovedMayFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), nil)
		c := newFake("website", &diary{})
		c.warm = func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("boom")
		}
		m.Add(c)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		testkit.Equal(t, fmt.Sprint(m.Remove(t.Context(), c)), `controller "website": boom`)
		stop()
		ok(t, result())
	})
}

// TestM6_RemoveWhileItStartsAndStops adds and removes from many goroutines, for the race detector.
func TestM6_RemoveWhileItStartsAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), elected)
		var changing sync.WaitGroup
		for n := range 10 {
			changing.Go(func() {
				for range 20 {
					c := newFake(string(rune('a'+n)), &diary{})
					m.Add(c)
					time.Sleep(time.Duration(n) * time.Millisecond)
					ok(t, m.Remove(t.Context(), c))
				}
			})
		}
		stop, result := start(t, m)
		time.Sleep(50 * time.Millisecond)
		stop()
		ok(t, result())
		changing.Wait()
	})
}
