// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// chain has two controllers, and the second acts on writes of the first: a Secret for each
// ConfigMap in default, and a ConfigMap in copies for each Secret.
type chain struct {
	api        *sim.Server
	manager    *manager.Manager
	reconciles atomic.Int64
	takes      atomic.Int64 // time of a Reconcile, a time.Duration
	handler    atomic.Int64 // time of an event handler
}

func newChain(options func(*manager.Options)) *chain {
	c := &chain{api: newAPI()}
	c.manager = newManager(c.api, options)
	maps, secrets := cache.For[*corev1.ConfigMap](c.manager.Cache()), cache.For[*corev1.Secret](c.manager.Cache())
	first := controller.New("first", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		c.work()
		if key.Namespace != "default" {
			return controller.Result{}, nil
		}
		m, err := maps.Get(ctx, key)
		if apierrors.IsNotFound(err) {
			return controller.Result{}, ignoreNotFound(client.For[*corev1.Secret](c.manager.Client()).Delete(ctx, key))
		} else if err != nil {
			return controller.Result{}, err
		}
		return controller.Result{}, ensure(ctx, secrets, client.For[*corev1.Secret](c.manager.Client()),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: key.Name}, StringData: m.Data},
			func(s *corev1.Secret) bool { return string(s.Data["value"]) == m.Data["value"] })
	}), controller.Options{Workers: 4})
	first.Watch(source.Kind(maps, handler.Self()))
	first.Reads(secrets)
	second := controller.New("second", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		c.work()
		s, err := secrets.Get(ctx, key)
		copied := types.NamespacedName{Namespace: "copies", Name: key.Name}
		if apierrors.IsNotFound(err) {
			return controller.Result{}, ignoreNotFound(client.For[*corev1.ConfigMap](c.manager.Client()).Delete(ctx, copied))
		} else if err != nil {
			return controller.Result{}, err
		}
		return controller.Result{}, ensure(ctx, maps, client.For[*corev1.ConfigMap](c.manager.Client()),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: copied.Namespace, Name: copied.Name}, Data: map[string]string{"value": string(s.Data["value"])}},
			func(m *corev1.ConfigMap) bool { return m.Data["value"] == string(s.Data["value"]) })
	}), controller.Options{Workers: 4})
	second.Watch(source.Kind(secrets, handler.Map(func(_ context.Context, s *corev1.Secret) ([]types.NamespacedName, error) {
		time.Sleep(time.Duration(c.handler.Load()))
		return []types.NamespacedName{{Namespace: s.Namespace, Name: s.Name}}, nil
	})))
	second.Reads(maps)
	c.manager.Add(first)
	c.manager.Add(second)
	return c
}

func (c *chain) work() {
	time.Sleep(time.Duration(c.takes.Load()))
	c.reconciles.Add(1)
}

func ensure[T cache.Object](ctx context.Context, read *cache.Handle[T], write *client.Handle[T], want T, same func(T) bool) error {
	now, err := read.Get(ctx, types.NamespacedName{Namespace: want.GetNamespace(), Name: want.GetName()})
	switch {
	case apierrors.IsNotFound(err):
		_, err = write.Create(ctx, want)
	case err == nil && !same(now):
		want.SetResourceVersion(now.GetResourceVersion())
		_, err = write.Update(ctx, want)
	}
	return err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *chain) put(name string, value int) {
	c.api.Put(sim.ConfigMaps, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"value": fmt.Sprint(value)},
	})
}

// idle waits for Idle. Then all work must be done, and nothing may follow.
func (c *chain) idle(t *testing.T, what string, want map[string]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := c.manager.Idle(ctx); err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	n := c.reconciles.Load()
	for i := range 10 {
		name := fmt.Sprint("o", i)
		value, there := want[name]
		copied := c.api.Object(sim.ConfigMaps, "copies", name)
		switch {
		case there != (copied != nil):
			t.Errorf("%s: is there a copy of %s: %v", what, name, copied != nil)
		case there && copied.Object["data"].(map[string]any)["value"] != fmt.Sprint(value):
			t.Errorf("%s: the copy of %s is %v, want %d", what, name, copied.Object["data"], value)
		}
	}
	testkit.Pass(30 * time.Second)
	testkit.Equal(t, c.reconciles.Load()-n, 0, what, "Reconciles after it was idle")
}

func TestM7_IdleAfterChains(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			c := newChain(func(o *manager.Options) {
				if seed%2 == 0 {
					elected(o)
				}
			})
			want := map[string]int{}
			stop, result := start(t, c.manager)
			for round := range 10 {
				c.api.Lag(time.Duration(r.IntN(3)) * time.Second)
				c.handler.Store(r.Int64N(2) * int64(time.Second))
				c.takes.Store(r.Int64N(2) * int64(time.Second))
				for range r.IntN(6) {
					name, value := fmt.Sprint("o", r.IntN(10)), r.IntN(100)
					if r.IntN(3) == 0 {
						c.api.Remove(sim.ConfigMaps, "default", name)
						delete(want, name)
						// An unseen creation and deletion has nothing to wait for: see
						// Subscription.CatchUp.
						testkit.Pass(time.Duration(r.IntN(4)) * time.Second)
					} else {
						c.put(name, value)
						want[name] = value
						testkit.Pass(3 * time.Second)
					}
				}
				if r.IntN(4) == 0 { // a relist
					c.api.Intercept(func(r *sim.Request) (*http.Response, error) {
						if r.Verb == "watch" && r.Resource.Resource != "leases" {
							return r.Refuse()
						}
						return nil, nil
					})
					c.api.CutWatches()
					testkit.Pass(time.Second)
					c.put("o1", round)
					want["o1"] = round
					c.put("o2", round)
					want["o2"] = round
					c.api.Expire()
					c.api.Intercept(nil)
				}
				c.idle(t, fmt.Sprintf("seed %d, round %d", seed, round), want)
			}
			stop()
			ok(t, result())
		})
	}
}

// idleIn calls Idle with a timeout of a minute.
func idleIn(t *testing.T, m *manager.Manager) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too late"))
	defer cancel()
	return m.Idle(ctx)
}

// wantBusy expects an error of Idle with these parts in this order.
func wantBusy(t *testing.T, m *manager.Manager, parts ...string) {
	t.Helper()
	err := idleIn(t, m)
	if err == nil {
		t.Errorf("it is idle, want %q", parts)
		return
	}
	wantParts(t, err, append([]string{`the manager "test" is not idle: `}, parts...)...)
}

func TestM7_TheErrorNamesWhatIsNotIdle(t *testing.T) {
	t.Run("a running Reconcile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(nil)
			stop, result := start(t, c.manager)
			c.takes.Store(int64(2 * time.Minute))
			c.put("front", 1)
			wantBusy(t, c.manager, `controller "first": workqueue "first": 1 held: default/front: too late`)
			testkit.Pass(time.Hour)
			stop()
			ok(t, result())
		})
	})
	t.Run("an object that is not shown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(nil)
			stop, result := start(t, c.manager)
			ok(t, idleIn(t, c.manager))
			testkit.Pass(time.Second) // until all watches are open
			c.api.Lag(time.Hour)
			c.put("front", 1)
			wantBusy(t, c.manager, `controller "first": Kind(ConfigMap.v1): ConfigMap.v1 is at version`, "does not show the write of default/front at 2", "too late",
				`controller "second": ConfigMap.v1 is at version`, "too late")
			stop()
			ok(t, result())
		})
	})
	t.Run("a handler that is not done", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(nil)
			stop, result := start(t, c.manager)
			c.handler.Store(int64(2 * time.Minute))
			c.put("front", 1)
			testkit.Pass(time.Second) // until the handler runs
			wantBusy(t, c.manager, `controller "second": Kind(Secret.v1): Secret.v1 has events that its handler has not seen yet`, "too late")
			testkit.Pass(time.Hour)
			stop()
			ok(t, result())
		})
	})
	t.Run("a kind that cannot be listed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(nil)
			c.api.Intercept(func(r *sim.Request) (*http.Response, error) {
				if r.Resource.Resource == "secrets" {
					return r.Fail(http.StatusForbidden, "no right")
				}
				return nil, nil
			})
			stop, result := start(t, c.manager)
			wantBusy(t, c.manager, `cannot list Secret.v1 at the API server: no right`, "too late", `cannot list Secret.v1 at the API server`)
			stop()
			ok(t, result())
		})
	})
	t.Run("controllers that never come to rest", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			api := newAPI()
			put(api, "a")
			m := newManager(api, nil)
			n := 0
			configMaps(m, "restless", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				n++
				_, err := client.For[*corev1.ConfigMap](m.Client()).Patch(ctx, key, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n))
				time.Sleep(100 * time.Millisecond)
				return controller.Result{}, err
			})
			stop, result := start(t, m)
			wantBusy(t, m, `restless`, "too late")
			stop()
			ok(t, result())
		})
	})
}

func TestM7_Standby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newChain(elected)
		stopLeader, leaderResult := start(t, leader.manager)
		testkit.Pass(time.Second)
		standby := newManager(leader.api, elected)
		configMaps(standby, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		})
		stop, result := start(t, standby)
		ok(t, idleIn(t, standby)) // nothing is due
		leader.put("front", 1)
		wantBusy(t, standby, `controller "website": it does not lead, so no worker takes its keys: `, "2 ready: ", "default/front", "too late")
		ok(t, idleIn(t, leader.manager))
		stopLeader()
		ok(t, leaderResult())
		ok(t, idleIn(t, standby))
		stop()
		ok(t, result())
	})
}

func TestM7_WhatDoesNotCount(t *testing.T) {
	for name, test := range map[string]struct {
		reconcile  controller.Func[types.NamespacedName]
		pause      func(c *controller.Controller[types.NamespacedName], key types.NamespacedName)
		reconciles int64
	}{
		"RequeueAfter": {reconcile: func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{RequeueAfter: 100 * time.Millisecond}, nil
		}, reconciles: 1},
		"a controller that is paused": {pause: func(c *controller.Controller[types.NamespacedName], _ types.NamespacedName) { c.Pause() }},
		"a key that is paused":        {pause: (*controller.Controller[types.NamespacedName]).PauseKey},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				m := newManager(api, nil)
				var n atomic.Int64
				c := controller.New("website", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
					n.Add(1)
					return test.reconcile(ctx, key)
				}), controller.Options{Logger: silent})
				c.Watch(source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), handler.Self()))
				m.Add(c)
				if test.pause != nil {
					test.pause(c, types.NamespacedName{Namespace: "default", Name: "a"})
				}
				stop, result := start(t, m)
				put(api, "a")
				ok(t, idleIn(t, m))
				testkit.Equal(t, n.Load(), test.reconciles, "Reconciles")
				stop()
				ok(t, result())
			})
		})
	}
}

// Idle waits for a key that fails a few times in a row, as with conflicts.
func TestM7_WhatFailsForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		m := newManager(api, nil)
		n := 0
		configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
			if n++; n <= 8 {
				return controller.Result{}, errors.New("a conflict")
			}
			return controller.Result{}, nil
		})
		stop, result := start(t, m)
		ok(t, idleIn(t, m))
		testkit.Equal(t, n, 9, "Reconciles")
		stop()
		ok(t, result())
	})
}

func TestM7_KindsThatAreNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		api.Withdraw(sim.Secrets)
		m := newManager(api, nil)
		var n atomic.Int64
		count := controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			n.Add(1)
			return controller.Result{}, nil
		})
		configMaps(m, "website", count)
		c := controller.New("optional", count, controller.Options{})
		c.Watch(source.Kind(cache.For[*corev1.Secret](m.Cache()), handler.Self()))
		m.Add(c)
		stop, result := start(t, m)
		put(api, "a")
		ok(t, idleIn(t, m))
		testkit.Equal(t, n.Load(), 1, "Reconciles")
		api.Serve(sim.Secrets)
		api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}})
		ok(t, idleIn(t, m))
		testkit.Equal(t, n.Load(), 2, "Reconciles")
		api.Withdraw(sim.Secrets)
		ok(t, idleIn(t, m))
		stop()
		ok(t, result())
	})
}

func TestM7_BeforeAndAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(nil)
		c.put("front", 1)
		wantBusy(t, c.manager, `controller "first": Kind(ConfigMap.v1): the source does not run yet: too late`)
		stop, result := start(t, c.manager)
		ok(t, idleIn(t, c.manager))
		testkit.NotEqual(t, c.reconciles.Load(), 0, "nothing was reconciled")
		c.takes.Store(int64(time.Second))
		c.api.Lag(time.Hour)
		c.put("front", 2)
		time.AfterFunc(10*time.Second, stop)
		began := time.Now()
		wantBusy(t, c.manager, "the source has stopped")
		testkit.Equal(t, time.Since(began), 10*time.Second, "the time until it heard of the stop")
		ok(t, result())
		wantBusy(t, c.manager, "the source has stopped")
	})
}

// A controller is removed, or added, during Idle.
func TestM7_RemovedAndAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		m := newManager(api, nil)
		stuck := make(chan struct{})
		c := controller.New("stuck", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			<-stuck
			return controller.Result{}, nil
		}), controller.Options{})
		c.Watch(source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), handler.Self()))
		m.Add(c)
		stop, result := start(t, m)
		var n atomic.Int64
		time.AfterFunc(10*time.Second, func() {
			configMaps(m, "late", func(context.Context, types.NamespacedName) (controller.Result, error) {
				time.Sleep(time.Second)
				n.Add(1)
				return controller.Result{}, nil
			})
			close(stuck)
			ok(t, m.Remove(t.Context(), c))
		})
		ok(t, idleIn(t, m))
		testkit.Equal(t, n.Load(), 1, "Reconciles of the one that was added")
		stop()
		ok(t, result())
	})
}

func TestM7_NothingToWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), nil)
		m.Add(newFake("of another type", &diary{}))
		stop, result := start(t, m)
		ok(t, idleIn(t, m))
		stop()
		if err := result(); err != nil && !strings.Contains(err.Error(), "canceled") {
			t.Error(err)
		}
	})
}

// TestIdle_AfterRun: Idle does not wait for a manager that could not run.
func TestIdle_AfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		m := newManager(api, func(o *manager.Options) { o.Grace = -1 })
		configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		})
		if err := m.Run(t.Context()); err == nil {
			t.Fatal("Run accepted a negative Grace")
		}
		testkit.ErrorContains(t, m.Idle(t.Context()), "Run has returned", "Idle returned")
	})
}
