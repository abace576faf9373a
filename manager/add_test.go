// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

func TestM6_AddWhileRunning(t *testing.T) {
	for name, options := range map[string]func(*manager.Options){"elected": elected, "alone": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				var mu sync.Mutex
				var keys []string
				api := newAPI()
				put(api, "a")
				m := newManager(api, options)
				stop, result := start(t, m)
				testkit.Pass(time.Minute)
				m.AddEverywhere("everywhere", d.until("everywhere", 0))
				m.AddLeaderOnly("leader only", d.until("leader only", 0))
				configMaps(m, "website", func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
					mu.Lock()
					defer mu.Unlock()
					keys = append(keys, key.Name)
					return controller.Result{}, nil
				})
				testkit.Pass(time.Minute)
				put(api, "b")
				testkit.Pass(time.Minute)
				slices.Sort(d.events)
				d.want(t, "everywhere starts", "leader only starts")
				stop()
				ok(t, result())
				d.want(t, "everywhere starts", "leader only starts", "leader only ends", "everywhere ends")
				testkit.SlicesEqual(t, keys, []string{"a", "b"}, "reconciled")
				m.Add(newFake("too late", &d)) // no effect, like the next two
				m.AddEverywhere("too late", d.until("too late", 0))
				m.AddLeaderOnly("too late", d.until("too late", 0))
				synctest.Wait()
				testkit.Len(t, d.events, 4, "something started after the end")
			})
		})
	}
}

func TestM6_WhatIsAddedRunsInEachTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		api := newAPI()
		giveLease(api)
		m := newManager(api, elected)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		m.AddLeaderOnly("before", d.until("before", 0)) // while the manager campaigns
		d.want(t)
		testkit.Pass(time.Minute)
		m.AddLeaderOnly("in", d.until("in", 0))
		testkit.Pass(time.Second)
		d.want(t, "before starts", "in starts")
		api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		testkit.Pass(time.Minute)
		m.AddLeaderOnly("between", d.until("between", 0))
		testkit.Pass(time.Second)
		slices.Sort(d.events)
		d.want(t, "before ends", "before starts", "in ends", "in starts")
		api.Intercept(nil)
		testkit.Pass(time.Minute)
		slices.Sort(d.events[4:])
		d.want(t, "before ends", "before starts", "in ends", "in starts", "before starts", "between starts", "in starts")
		stop()
		ok(t, result())
	})
}

func TestM6_WhatIsWrongEndsRun(t *testing.T) {
	for want, add := range map[string]func(*manager.Manager){
		"Add: the controller is nil":                                       func(m *manager.Manager) { m.Add((*controller.Controller[types.NamespacedName])(nil)) },
		`two controllers are named "website"; give each a name of its own`: func(m *manager.Manager) { m.Add(newFake("website", &diary{})) },
		"boom": func(m *manager.Manager) {
			c := newFake("another", &diary{})
			c.wrong = errors.New("boom")
			c.warm = func(context.Context) error { return errors.New("it was started") }
			m.Add(c)
		},
		"reporter: boom": func(m *manager.Manager) {
			m.AddEverywhere("reporter", func(context.Context) error { return errors.New("boom") })
		},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newManager(newAPI(), elected)
				m.Add(newFake("website", &diary{}))
				_, result := start(t, m)
				testkit.Pass(time.Minute)
				add(m)
				testkit.Equal(t, fmt.Sprint(result()), want, "Run returned")
			})
		})
	}
}

// TestM6_AddWhileItStops adds from many goroutines while the manager starts and stops, for the race
// detector.
func TestM6_AddWhileItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), elected)
		var adding sync.WaitGroup
		for range 20 {
			adding.Go(func() {
				for range 20 {
					m.AddEverywhere("everywhere", (&diary{}).until("", 0))
					m.AddLeaderOnly("leader only", (&diary{}).until("", 0))
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		stop, result := start(t, m)
		time.Sleep(100 * time.Millisecond)
		stop()
		ok(t, result())
		adding.Wait()
	})
}
