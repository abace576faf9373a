// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// slowEvents records events after a delay.
type slowEvents struct {
	events
	takes time.Duration
}

func (e *slowEvents) handler() toolscache.ResourceEventHandler {
	slow := func(what string, obj any) {
		time.Sleep(e.takes)
		e.add(what, obj)
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { slow("add", obj) },
		UpdateFunc: func(_, obj any) { slow("update", obj) },
		DeleteFunc: func(obj any) { slow("delete", obj) },
	}
}

// caughtUp calls CatchUp, checks its duration, and returns the events that the handler saw since
// the last call.
func caughtUp(t *testing.T, what string, c interface{ CatchUp(context.Context) error }, e interface{ take() string }, takes time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	began := time.Now()
	testkit.Equal(t, c.CatchUp(ctx), nil, what)
	told := e.take()
	testkit.Equal(t, time.Since(began), takes, what)
	synctest.Wait()
	testkit.Equal(t, e.take(), "", what, "events come that there were at the call")
	return told
}

func TestS10_CatchUp(t *testing.T) {
	const lag, takes = 10 * time.Second, time.Second
	put := func(api *sim.Server, name string, data ...string) {
		api.Put(sim.ConfigMaps, testkit.ConfigMap(name, data...))
	}
	relist := func(change func(api *sim.Server)) func(api *sim.Server) {
		return func(api *sim.Server) {
			api.Intercept(onWatch(refuse))
			api.CutWatches()
			synctest.Wait()
			change(api)
			api.Expire()
			api.Intercept(nil)
		}
	}
	for name, test := range map[string]struct {
		change func(api *sim.Server)
		told   string
		events time.Duration // duration of the handler calls
	}{
		"nothing": {func(*sim.Server) {}, "", 0},
		"create":  {func(api *sim.Server) { put(api, "c") }, "add c", 1},
		"update":  {func(api *sim.Server) { put(api, "a", "1") }, "update a", 1},
		"delete":  {func(api *sim.Server) { api.Remove(sim.ConfigMaps, "default", "a") }, "delete a", 1},
		"another of its name": {func(api *sim.Server) {
			api.Remove(sim.ConfigMaps, "default", "a")
			put(api, "a")
		}, "delete a, add a", 2},
		"twice": {func(api *sim.Server) { put(api, "a", "1"); put(api, "b", "1"); put(api, "a", "2") }, "update a, update b, update a", 3},
	} {
		run := func(t *testing.T, prepare func(*sim.Server), test func(t *testing.T, api *sim.Server, s *cache.Subscription, e *slowEvents)) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				put(api, "a")
				put(api, "b")
				prepare(api)
				c, _ := newCache(t, api)
				e := &slowEvents{takes: takes}
				s, err := cache.For[*corev1.ConfigMap](c).Subscribe(e.handler())
				testkit.NoError(t, err)
				defer testkit.Start(t, c.Run)()
				defer s.Close()
				caughtUp(t, "at the start", s, e, 2*takes)
				test(t, api, s, e)
			})
		}
		check := func(t *testing.T, what string, s *cache.Subscription, e *slowEvents, lag time.Duration) {
			testkit.Equal(t, caughtUp(t, what, s, e, lag+test.events*takes), test.told, what, "the handler was told")
			caughtUp(t, "again", s, e, 0)
		}
		t.Run("the watch lags/"+name, func(t *testing.T) {
			run(t, func(api *sim.Server) { api.Lag(lag) }, func(t *testing.T, api *sim.Server, s *cache.Subscription, e *slowEvents) {
				test.change(api)
				want := lag
				if test.events == 0 {
					want = 0
				}
				check(t, "a late event", s, e, want)
			})
		})
		t.Run("the handler lags/"+name, func(t *testing.T) {
			run(t, func(*sim.Server) {}, func(t *testing.T, api *sim.Server, s *cache.Subscription, e *slowEvents) {
				test.change(api)
				synctest.Wait() // until the store has it
				check(t, "a late handler", s, e, 0)
			})
		})
	}
	for name, change := range map[string]func(api *sim.Server){
		"one created": func(api *sim.Server) { put(api, "c") },
		"all updated": func(api *sim.Server) { put(api, "b", "1"); put(api, "a", "1") },
		"one deleted": func(api *sim.Server) { api.Remove(sim.ConfigMaps, "default", "a") },
		"all deleted": func(api *sim.Server) {
			api.Remove(sim.ConfigMaps, "default", "a")
			api.Remove(sim.ConfigMaps, "default", "b")
		},
	} {
		t.Run("relist/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				put(api, "a")
				put(api, "b")
				c, _ := newCache(t, api)
				e := &slowEvents{takes: time.Minute}
				s, err := cache.For[*corev1.ConfigMap](c).Subscribe(e.handler())
				testkit.NoError(t, err)
				defer testkit.Start(t, c.Run)()
				defer s.Close()
				caughtUp(t, "at the start", s, e, 2*e.takes)
				relist(change)(api)
				e.take()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				testkit.Equal(t, s.CatchUp(ctx), nil)
				testkit.NotEqual(t, e.take(), "", "the handler was not told")
				time.Sleep(time.Hour)
				testkit.Equal(t, e.take(), "", "events come after it has caught up")
			})
		})
	}
}

// An object that was created and deleted leaves nothing to compare. If the informer saw it, the
// handler must have seen it, too.
func TestS10_CreatedAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, _ := newCache(t, api)
		e := &slowEvents{takes: time.Second}
		s, err := cache.For[*corev1.ConfigMap](c).Subscribe(e.handler())
		testkit.NoError(t, err)
		defer testkit.Start(t, c.Run)()
		defer s.Close()
		caughtUp(t, "at the start", s, e, time.Second)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
		api.Remove(sim.ConfigMaps, "default", "b")
		synctest.Wait()
		testkit.Equal(t, caughtUp(t, "both are on their way", s, e, 2*time.Second), "add b, delete b", "the handler was told")
		late, all := subscribe(t, cache.For[*corev1.ConfigMap](c)) // never saw the object
		defer late.Close()
		caughtUp(t, "somebody new", late, all, 0)
	})
}

func TestS10_Handle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		api.Lag(10 * time.Second)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		caughtUp(t, "a late event", maps, &events{}, 10*time.Second)
		testkit.Equal(t, testkit.Err(maps.Get(t.Context(), testkit.Key("a"))), nil)
	})
}

// An object may be deleted during CatchUp.
func TestS10_GoneMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		api.Intercept(onWatch(refuse))
		api.CutWatches()
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		time.AfterFunc(10*time.Second, func() {
			api.Remove(sim.ConfigMaps, "default", "a")
			api.Expire() // the watch misses both
			api.Intercept(nil)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		testkit.Equal(t, maps.CatchUp(ctx), nil)
	})
}

func TestS10_Trouble(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(api *sim.Server) (later func())
		want    []string // parts of the error; none means nil
	}{
		"not served":                {func(api *sim.Server) func() { api.Withdraw(sim.ConfigMaps); return func() {} }, nil},
		"not served, and then gone": {func(api *sim.Server) func() { return func() { api.Withdraw(sim.ConfigMaps) } }, nil},
		"the server errs for a while": {func(api *sim.Server) func() {
			api.Intercept(func(r *sim.Request) (*http.Response, error) {
				return r.Fail(http.StatusInternalServerError, "boom")
			})
			time.AfterFunc(time.Minute, func() { api.Intercept(nil) })
			return func() {}
		}, nil},
		"a list is never answered": {func(api *sim.Server) func() {
			return func() {
				api.Intercept(hang)
				time.AfterFunc(time.Second, func() { api.Intercept(nil) })
			}
		}, nil},
		"no right": {func(api *sim.Server) func() { api.Intercept(only(sim.ConfigMaps, forbid)); return func() {} },
			[]string{"cannot list ConfigMap.v1 at the API server", "no right to list", "too late"}},
		"no right to watch": {func(api *sim.Server) func() {
			return func() {
				api.Intercept(onWatch(forbid))
				api.CutWatches()
				api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
			}
		}, []string{"ConfigMap.v1 is failing", "no right to watch", "does not show the write of default/b at 3", "too late"}},
		"refused": {func(api *sim.Server) func() { return func() { api.Intercept(refuse) } }, []string{"cannot list", "refused", "too late"}},
		"a delete that does not come": {func(api *sim.Server) func() {
			api.Lag(24 * time.Hour)
			return func() { api.Remove(sim.ConfigMaps, "default", "a") }
		}, []string{"ConfigMap.v1 is at version", "does not show the deletion of default/a", "too late"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
				c, _ := newCache(t, api)
				maps := cache.For[*corev1.ConfigMap](c)
				defer testkit.Start(t, c.Run)()
				later := test.prepare(api)
				time.Sleep(2 * time.Second)
				later()
				ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Minute, errors.New("too late"))
				defer cancel()
				err := maps.CatchUp(ctx)
				if (err == nil) != (test.want == nil) {
					t.Fatalf("the error is %v, want %q", err, test.want)
				}
				for _, part := range test.want {
					testkit.ErrorContains(t, err, part)
				}
			})
		})
	}
}

// A CRD was just installed: the informer notices within seconds.
func TestS10_ServedFromNowOn(t *testing.T) {
	for offset := range 8 { // for each phase of the informer's lookups
		synctest.Test(t, func(t *testing.T) { servedFromNowOn(t, time.Minute+time.Duration(offset)*500*time.Millisecond) })
	}
}

func servedFromNowOn(t *testing.T, after time.Duration) {
	t.Helper()
	api := sim.NewServer()
	c, _ := newCache(t, api)
	maps := cache.For[*corev1.ConfigMap](c)
	defer testkit.Start(t, c.Run)()
	time.Sleep(after)
	api.Serve(sim.ConfigMaps)
	api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	testkit.NoError(t, maps.CatchUp(ctx))
	testkit.Equal(t, testkit.Err(maps.Get(ctx, testkit.Key("a"))), nil)
}

// The scope of an adopted informer is unknown. So CatchUp also waits for objects outside the scope,
// but not longer than an event could take.
func TestS10_Adopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, _ := newCache(t, api)
		host := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(api.Config()), 0,
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "name!=outside" }))
		informer := host.Core().V1().ConfigMaps().Informer()
		e := &slowEvents{takes: time.Second}
		s, err := cache.Adopt[*corev1.ConfigMap](c, informer, cache.AdoptOptions{}).Subscribe(e.handler())
		testkit.NoError(t, err)
		defer runs(informer)()
		defer testkit.Start(t, c.Run)()
		defer s.Close()
		testkit.Equal(t, caughtUp(t, "at the start", s, e, time.Second), "add a")
		api.Put(sim.ConfigMaps, testkit.ConfigMap("outside"))
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
		synctest.Wait()
		testkit.Equal(t, caughtUp(t, "an event", s, e, time.Second), "update a")
		api.Put(sim.ConfigMaps, testkit.ConfigMap("outside", "1"))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := s.CatchUp(ctx); err != nil { // bookmarks come each minute
			t.Error(err)
		}
	})
}

func TestS10_NobodyToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(sim.NewServer(sim.ConfigMaps).Config()), 0).Core().V1().ConfigMaps().Informer()
		c := cache.New(nil, cache.Options{})
		h := cache.Adopt[*corev1.ConfigMap](c, informer, cache.AdoptOptions{})
		testkit.ErrorContains(t, h.CatchUp(t.Context()), "ConfigMap.v1 (adopted) cannot be compared with what the API server has")
		h.Release()
	})
}

// CatchUp waits for the deletes of objects that leave the scope, and for objects that enter it.
func TestS10_Namespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		for _, namespace := range []string{"one", "two"} {
			o := testkit.ConfigMap("in-" + namespace)
			o.Namespace = namespace
			api.Put(sim.ConfigMaps, o)
		}
		c, _ := newCache(t, api)
		namespaces := cache.NewSet("one")
		e := &slowEvents{takes: time.Second}
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: namespaces})
		// This handle keeps the informer.
		other := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("one")})
		defer other.Release()
		s, err := h.Subscribe(e.handler())
		testkit.NoError(t, err)
		defer testkit.Start(t, c.Run)()
		defer s.Close()
		testkit.Equal(t, caughtUp(t, "at the start", s, e, time.Second), "add in-one")
		namespaces.Add("two")
		testkit.Equal(t, caughtUp(t, "with another", s, e, time.Second), "add in-two")
		namespaces.Remove("one")
		if told := caughtUp(t, "with one less", s, e, time.Second); told != "delete in-one" && told != "missed in-one" {
			t.Errorf("told %q", told)
		}
	})
}

// An undecodable object has no event, but the informer has seen it.
func TestS10_Undecodable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(widgets)
		api.Put(widgets, widget("odd", int64(1)))
		c, _ := widgetCache(t, api)
		h := cache.For[*Widget](c)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		api.Put(widgets, widget("odd", "large"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		testkit.Equal(t, h.CatchUp(ctx), nil)
	})
}

// TestS10_MarksReachOurHandlersOnly: a mark reaches neither client-go event handlers, nor a
// transform, nor the store.
func TestS10_MarksReachOurHandlersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, _ := newCache(t, api)
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Transform: cache.NewTransform("check", func(m *corev1.ConfigMap) {
			testkit.Equal(t, m.Name, "a", "the transform is given")
		})})
		others := []*events{{}, {}, {}}
		_, first := informerOf(h).AddEventHandler(others[0].handler())
		_, second := informerOf(h).AddEventHandlerWithResyncPeriod(others[1].handler(), 0)
		_, third := informerOf(h).AddEventHandlerWithOptions(others[2].handler(), toolscache.HandlerOptions{})
		testkit.NoError(t, errors.Join(first, second, third))
		s, ours := subscribe(t, h)
		defer testkit.Start(t, c.Run)()
		defer s.Close()
		testkit.Equal(t, caughtUp(t, "at the start", s, ours, 0), "add a", "our handler was told")
		for _, e := range others {
			testkit.Equal(t, e.take(), "add a", "a foreign handler was told")
		}
		testkit.Len(t, informerOf(h).GetStore().ListKeys(), 1)
	})
}
