// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestC6_Lag: a lag names the informer, its version, and the write.
func TestC6_Lag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The system namespaces have the versions 2 to 5.
		api := sim.NewServer(sim.ConfigMaps, sim.Namespaces)
		api.Lag(time.Hour)
		c, _ := newCache(t, api)
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("default")})
		everywhere := cache.For[*corev1.Namespace](c)
		d := declared(h, everywhere)
		defer testkit.Start(t, c.Run)()
		synctest.Wait()
		w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
		missing := func(w consistency.Write) string {
			g, err := d.Behind(w)
			if g == nil || err != nil {
				t.Fatalf("got %v, %v", g, err)
			}
			return g.String()
		}
		testkit.Equal(t, missing(w), "ConfigMap.v1 (namespace default) is at version 5 and does not show the write of default/a at 6")
		w.Gone = true
		testkit.Equal(t, missing(w), "ConfigMap.v1 (namespace default) is at version 5 and does not show the deletion of default/a at 6")
		n := writtenOf(sim.Namespaces, api.Put(sim.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
		testkit.Equal(t, missing(n), "Namespace.v1 is at version 5 and does not show the write of a at 7")
	})
}

// TestC6_Swallowed: a relist that merges a create and a delete wakes its waiters. A waiter for an
// object that never appears wakes at the next event of any other object.
func TestC6_Swallowed(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				dropBookmarks(api)
				api.Intercept(a)
				known := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
				c, _ := newCache(t, api)
				h := cache.For[*corev1.ConfigMap](c)
				d := declared(h)
				defer testkit.Start(t, c.Run)()
				synced(t, h)
				late, release := until()
				api.Intercept(late)
				api.CutWatches()
				synctest.Wait()
				api.Remove(sim.ConfigMaps, "default", "a")
				unseen := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("b")))
				api.Remove(sim.ConfigMaps, "default", "b")
				api.Expire()
				n, m := notify(t, d, goneOf(known)), notify(t, d, unseen)
				api.Intercept(a)
				release()
				time.Sleep(10 * time.Second)
				n.called(1, "it is gone")
				expect(t, d, unseen, "shown", "the list was newer")
				api.Put(sim.ConfigMaps, testkit.ConfigMap("other"))
				m.called(1, "something else has happened")
			})
		})
	}
}

// TestC6_Order: waiters for versions wake when the store reaches them, by any event. Canceled
// waiters do not wake.
func TestC6_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		d := declared(h)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		const many = 50
		var all []*waiting
		for n := range many { // versions descend; the objects never exist
			w := consistency.Write{Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "default", Name: fmt.Sprint("ghost", n), UID: "u", ResourceVersion: fmt.Sprint(2 + many - n)}
			all = append(all, notify(t, d, w))
			if n%3 == 0 {
				all[n].cancel()
				all[n].cancel()
			}
		}
		for at := 2; at < 2+many; at++ {
			if got := api.Put(sim.ConfigMaps, testkit.ConfigMap("a", fmt.Sprint(at))).GetResourceVersion(); got != fmt.Sprint(at) {
				t.Fatalf("the version is %s, want %d", got, at)
			}
			for n, one := range all {
				want := int32(0)
				if 2+many-n <= at && n%3 != 0 {
					want = 1
				}
				one.called(want, fmt.Sprintf("at %d, waiting for %d", at, 2+many-n))
			}
		}
	})
}

// TestC6_Trouble: a waiter wakes when waiting has become useless: the informer stopped, the object
// left the scope, or the handle was released. It keeps waiting while the informer fails.
func TestC6_Trouble(t *testing.T) {
	for name, then := range map[string]func(*trouble){
		"the informer fails": func(t *trouble) {
			t.api.Intercept(refuse)
			t.api.CutWatches()
			time.Sleep(time.Minute)
			t.want, t.waits = "behind", true
		},
		"the namespace leaves the scope": func(t *trouble) { t.namespaces.Remove("default") },
		"the scope is another":           func(t *trouble) { t.namespaces.Replace("other") },
		"the handle is released":         func(t *trouble) { t.handle.Release() },
		"the cache stops": func(t *trouble) {
			t.stop()
			t.want = "unclear"
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Lag(time.Hour)
				c, _ := newCache(t, api)
				namespaces := cache.NewSet("default")
				h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: namespaces})
				// This handle keeps the informer.
				other := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("default")})
				stop := testkit.Start(t, c.Run)
				defer stop()
				synced(t, h)
				d := declared(h)
				w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
				n, cancelled, elsewhere := notify(t, d, w), notify(t, d, w), notify(t, declared(other), w)
				cancelled.cancel()
				stale, _ := d.Behind(w)
				n.called(0, "before")
				x := &trouble{api: api, namespaces: namespaces, handle: h, stop: stop, want: "shown"}
				then(x)
				if x.waits {
					n.called(0, name)
					expect(t, d, w, x.want, name)
					return
				}
				n.called(1, name)
				cancelled.called(0, "cancelled")
				expect(t, d, w, x.want, name)
				late := &waiting{t: t}
				stale.Notify(wake(func() { late.calls.Add(1) }))()
				late.called(1, "who comes late")
				if x.want == "shown" {
					elsewhere.called(0, "the informer goes on for others")
				} else {
					elsewhere.called(1, name)
				}
			})
		})
	}
}

// trouble is an event that can happen to an informer.
type trouble struct {
	api        *sim.Server
	namespaces *cache.Set[string]
	handle     *cache.Handle[*corev1.ConfigMap]
	stop       func()
	want       string
	waits      bool // waiters are not called
}

// TestC6_LastRelease: an informer that stops during a wait leaves nothing behind (S6).
func TestC6_LastRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Lag(time.Hour)
		c, _ := newCache(t, api)
		defer testkit.Start(t, c.Run)()
		synctest.Wait()
		before := runtime.NumGoroutine()
		w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
		for range 10 {
			names := cache.NewSet(types.NamespacedName{Namespace: "default", Name: "a"})
			h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Names: names})
			synced(t, h)
			d := declared(h)
			w.ResourceVersion = "1000"
			n, m := notify(t, d, w), notify(t, d, w)
			h.Release()
			time.Sleep(10 * time.Second)
			n.called(1, "released")
			m.called(1, "released")
		}
		if after := runtime.NumGoroutine(); after >= before+10 { // one for each would exceed this
			t.Errorf("%d goroutines, %d before", after, before)
		}
	})
}

// TestC6_NothingIsKept: waiters that were called or canceled leave nothing behind.
func TestC6_NothingIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Lag(lag)
		c, _ := newCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		d := declared(h)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
		never := w
		never.Name, never.ResourceVersion = "never", "1000"
		wait := func(w consistency.Write) (of weak.Pointer[[64]byte], cancel func()) {
			missing, _ := d.Behind(w)
			kept := new([64]byte)
			return weak.Make(kept), missing.Notify(wake(func() { kept[0]++ }))
		}
		called, _ := wait(w)
		cancelled, cancel := wait(never)
		waits, end := wait(never)
		cancel()
		time.Sleep(lag)
		synctest.Wait()
		runtime.GC()
		testkit.Equal(t, called.Value(), nil)
		testkit.Equal(t, cancelled.Value(), nil)
		testkit.NotEqual(t, waits.Value(), nil)
		end()
	})
}

// TestC6_NoWakeIsLost: a waiter that registers during the event is woken. Run with -race.
func TestC6_NoWakeIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		d := declared(h)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		client := kubernetes.NewForConfigOrDie(api.Config()).CoreV1().ConfigMaps("default")
		var writers sync.WaitGroup
		for writer := range 8 {
			writers.Go(func() {
				name := fmt.Sprint("m", writer%4) // two for each object
				for round := range 100 {
					var w consistency.Write
					if round%4 == 3 {
						w = goneOf(writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap(name))))
						_ = client.Delete(t.Context(), name, metav1.DeleteOptions{})
						w.ResourceVersion = api.Version()
					} else {
						w = writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap(name, fmt.Sprint(writer, round))))
					}
					await(t, d, w, round%2 == 0)
				}
			})
		}
		writers.Wait()
	})
}

// await waits like a controller, but without a timer: a lost wake is a deadlock, which the bubble
// reports.
func await(t *testing.T, d consistency.Declarations, w consistency.Write, cancels bool) {
	for {
		missing, err := d.Behind(w)
		testkit.Equal(t, err, nil)
		if missing == nil {
			return
		}
		woken := make(chan struct{})
		if cancels { // during the wait
			defer missing.Notify(wake(func() {}))()
			missing.Notify(wake(func() {}))()
		}
		cancel := missing.Notify(wake(func() { close(woken) }))
		<-woken
		cancel()
	}
}
