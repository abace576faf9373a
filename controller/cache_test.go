// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// cluster is an API server in memory, with a cache that runs until the test ends.
func cluster(t *testing.T, resources ...sim.Resource) (*sim.Server, *cache.Cache) {
	t.Helper()
	api := sim.NewServer(resources...)
	cl, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	c := cache.New(cl, cache.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		ok(t, <-done)
	})
	return api, c
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }

// TestS9_OneForbiddenKindAmongSeveral: a forbidden kind and one that is not served do not stop the
// workers of their own controller. Other kinds can be read, reads report what is stale, and all
// recover.
func TestS9_OneForbiddenKindAmongSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, all := cluster(t, sim.ConfigMaps, sim.Secrets)
		forbidden := func(r *sim.Request) (*http.Response, error) {
			if r.Resource.Resource == sim.Secrets.Name {
				return r.Fail(http.StatusForbidden, "no right")
			}
			return nil, nil
		}
		api.Intercept(forbidden)
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a")})
		maps, secrets, deployments := cache.For[*corev1.ConfigMap](all), cache.For[*corev1.Secret](all), cache.For[*appsv1.Deployment](all)
		var mu sync.Mutex
		var keys []string
		var stale error
		c := controller.New("test", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			keys, stale = append(keys, key.Name), controller.Stale(ctx)
			_, err := maps.Get(ctx, key)
			return controller.Result{}, err
		}), controller.Options{Logger: silent})
		c.Watch(source.Kind(maps, handler.Self()))
		c.Watch(source.Kind(secrets, handler.Self()))
		c.Reads(deployments)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		next := func(want string, parts ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			testkit.SlicesEqual(t, keys, []string{want}, "reconciled")
			keys = nil
			testkit.Equal(t, stale != nil, len(parts) > 0, "stale", stale)
			for _, part := range parts {
				testkit.Contains(t, fmt.Sprint(stale), part)
			}
		}
		rest := func(d time.Duration) { // let time pass and forget what was reconciled
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			keys = nil
		}
		put := func(name string) { api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named(name)}) }

		next("a", "Secret.v1: failing", "no right", "Deployment.v1.apps: waiting")
		api.Intercept(nil)
		api.Serve(sim.Deployments)
		time.Sleep(10 * time.Second)
		put("b")
		next("b")

		// A kind that was synced and fails now is stale. Reads return its last known state.
		api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("s")})
		next("s") // the ConfigMap s is not found: an error, and a retry
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("s")})
		rest(time.Minute)
		api.Intercept(forbidden)
		api.CutWatches()
		time.Sleep(time.Minute)
		put("c")
		next("c", "Secret.v1: failing", "no right")
		s, err := secrets.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "s"})
		testkit.Equal(t, err, nil, s)
		api.Intercept(nil)
		rest(time.Minute)
		put("d")
		next("d")
		cancel()
		ok(t, <-ended)
	})
}

// mapper is a big object that a source holds.
type mapper struct {
	memory [1 << 16]byte
	calls  int
}

func (m *mapper) keys(_ context.Context, c *corev1.ConfigMap) ([]types.NamespacedName, error) {
	m.calls++
	m.memory[0] = byte(m.calls)
	return []types.NamespacedName{{Namespace: c.Namespace, Name: c.Name}}, nil
}

// TestS6_ThousandWatches: sources that are added and removed leave no goroutine, memory or watch
// behind. Half share an informer, half have their own.
func TestS6_ThousandWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, all := cluster(t, sim.ConfigMaps)
		for _, name := range []string{"a", "b"} {
			api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named(name)})
		}
		shared := cache.For[*corev1.ConfigMap](all)
		c := controller.New("test", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		}), controller.Options{Logger: silent})
		c.Watch(source.Kind(shared, handler.Self()))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		<-c.Synced()
		var left []weak.Pointer[mapper]
		watchOnce := func(objects *cache.Handle[*corev1.ConfigMap]) {
			m := &mapper{}
			left = append(left, weak.Make(m))
			src := source.Kind(objects, handler.Map(m.keys), handler.Where(func(_, _ *corev1.ConfigMap) bool { return m.calls >= 0 }))
			c.Watch(src)
			ok(t, src.Status().WaitForSync(t.Context()))
			ok(t, c.Unwatch(t.Context(), src))
			testkit.NotEqual(t, m.calls, 0, "a source saw nothing")
		}
		rounds := func(n int) {
			for range n {
				watchOnce(shared)
				own := cache.ForScope[*corev1.ConfigMap](all, cache.Scope{Names: cache.NewSet(types.NamespacedName{Namespace: "default", Name: "a"})})
				watchOnce(own)
				own.Release()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		rounds(10)
		goroutines, watches, heap := runtime.NumGoroutine(), api.Watches(), heapNow()
		rounds(500)
		testkit.AtMost(t, runtime.NumGoroutine(), goroutines+10) // the runtime's come and go
		if n := api.Watches(); n != watches || n != 1 {
			t.Errorf("%d watches, %d before", n, watches)
		}
		testkit.AtMost(t, heapNow()-heap, 8<<20) // one mapper alone would be 64 MB
		alive := 0
		for _, m := range left {
			if m.Value() != nil {
				alive++
			}
		}
		testkit.Equal(t, alive, 0)
		cancel()
		ok(t, <-ended)
	})
}

func heapNow() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
