// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestScopeNothingToWaitFor: a wait for a namespace that cannot be listed ends when the namespace
// leaves the scope, even if another handle keeps its informer.
func TestScopeNothingToWaitFor(t *testing.T) {
	for name, elsewhere := range map[string]bool{"stopped": false, "kept elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Namespace != "forbidden" {
						return nil, nil
					}
					return forbid(r)
				})
				c, _ := newCache(t, api)
				set := cache.NewSet("default", "forbidden")
				h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: set})
				if elsewhere {
					cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("forbidden")})
				}
				seen, _ := subscribe(t, h)
				defer seen.Close()
				defer testkit.Start(t, c.Run)()
				time.Sleep(time.Minute)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				ended := make(chan error, 2)
				go func() { ended <- h.WaitForSync(ctx) }()
				go func() { ended <- seen.WaitForSync(ctx) }()
				synctest.Wait()
				set.Remove("forbidden")
				for range 2 {
					testkit.Equal(t, <-ended, nil)
				}
			})
		})
	}
}

// TestScopeChangedByACallbackAtTheEnd: a callback may change a Set while the cache stops and waits
// for the callback.
func TestScopeChangedByACallbackAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, _ := newCache(t, api)
		set := cache.NewSet("default")
		ctx, cancel := context.WithCancel(t.Context())
		_, err := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: set}).Subscribe(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) {
				<-ctx.Done()
				time.Sleep(time.Second)
				set.Remove("default")
			},
		})
		testkit.NoError(t, err)
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		cancel()
		testkit.Equal(t, <-ended, nil)
	})
}

// TestScopeOfAll: an empty element selects everything among namespaces, but not among names.
func TestScopeOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, _ := newCache(t, api)
		set := &cache.Set[types.NamespacedName]{}
		named := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Names: set})
		all := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("default", "")})
		defer testkit.Start(t, c.Run)()
		for _, element := range []types.NamespacedName{{}, {Namespace: "default"}} {
			set.Add(element)
			testkit.Len(t, testkit.Must(named.List(t.Context(), cache.ListOptions{})), 0, element)
		}
		testkit.Len(t, testkit.Must(all.List(t.Context(), cache.ListOptions{})), 1)
	})
}

// TestS2_ScopeLeavesWhileHandled (S2): an object deleted during a callback is a delete, even if its
// namespace leaves the scope before the callback returns. Close waits for that.
func TestS2_ScopeLeavesWhileHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
		c, _ := newCache(t, api)
		set, e := cache.NewSet("default"), &events{}
		seen, err := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: set}).Subscribe(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    e.handler().(toolscache.ResourceEventHandlerFuncs).AddFunc,
			UpdateFunc: func(any, any) { time.Sleep(time.Minute) },
			DeleteFunc: e.handler().(toolscache.ResourceEventHandlerFuncs).DeleteFunc,
		})
		testkit.NoError(t, err)
		defer testkit.Start(t, c.Run)()
		synctest.Wait()
		e.take()
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b", "1"))
		synctest.Wait()
		api.Remove(sim.ConfigMaps, "default", "a")
		synctest.Wait()
		set.Remove("default")
		time.Sleep(2 * time.Minute)
		if got := e.take(); got != "missed a, missed b" && got != "missed b, missed a" {
			t.Errorf("got %s", got)
		}
		set.Add("default")
		synctest.Wait()
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b", "2"))
		synctest.Wait()
		set.Remove("default")
		synctest.Wait()
		begin := time.Now()
		seen.Close()
		testkit.AtLeast(t, time.Since(begin), 30*time.Second)
	})
}

// TestScopeLeavesAndReturns: a namespace that leaves the scope and returns at once is in the scope
// in the end.
func TestScopeLeavesAndReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, _ := newCache(t, api)
		set := cache.NewSet("default")
		seen, e := subscribe(t, cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: set}))
		defer seen.Close()
		defer testkit.Start(t, c.Run)()
		synctest.Wait()
		e.take()
		for range 1000 {
			set.Remove("default")
			set.Add("default")
			synctest.Wait()
			if got := e.take(); got != "missed a, add a" {
				t.Fatalf("got %q", got)
			}
		}
	})
}
