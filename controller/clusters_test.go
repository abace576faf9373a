// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// clusterAt is cluster for a further cluster, at a host of its own.
func clusterAt(t *testing.T, name string, api *sim.Server) *cache.Cache {
	t.Helper()
	return cacheAt(t, name, api, cache.Options{Cluster: name})
}

func cacheAt(t *testing.T, host string, api *sim.Server, o cache.Options) *cache.Cache {
	t.Helper()
	cl, err := client.New(&rest.Config{Host: "http://" + host + ".test", Transport: api}, client.Options{})
	ok(t, err)
	c := cache.New(cl, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		ok(t, <-done)
	})
	return c
}

// TestL9_AClusterThatCannotBeReached: the keys of the others do not wait for what the previous
// leader wrote there. Stale names it until the cluster shows it.
func TestL9_AClusterThatCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, all := cluster(t, sim.ConfigMaps)
		west := sim.NewServer(sim.Secrets)
		hangs := west.Add(fault.Rule{Hang: true})
		secrets := cache.For[*corev1.Secret](clusterAt(t, "west", west))
		s := west.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("s")})
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a")})
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		var stale []error
		c := controller.New("test", controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			at, stale = append(at, time.Since(began).Truncate(time.Second)), append(stale, controller.Stale(ctx))
			return controller.Result{}, nil
		}), controller.Options{Logger: silent})
		c.Watch(source.Kind(cache.For[*corev1.ConfigMap](all), handler.Self()))
		c.Watch(source.Kind(secrets, handler.Self()))
		leading := fence.New(fence.Token{}, time.Now(), time.Hour)
		w := wrote("secrets", "s", string(s.GetUID()), s.GetResourceVersion(), ledger.Stored)
		w.Host = "http://west.test"
		leading.Inherit(handedOver("a", w))
		synctest.Wait() // the caches run
		ctx, cancel := context.WithCancel(fence.With(context.Background(), leading))
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		hangs.Remove()
		time.Sleep(3 * time.Minute)
		// s may come just before its informer is synced.
		c.Requeue(types.NamespacedName{Namespace: "default", Name: "a"})
		synctest.Wait()
		const missing = "does not show the write of secrets at "
		if len(at) != 3 || at[0] != 0 || stale[0] == nil || !strings.Contains(stale[0].Error(), missing) || stale[2] != nil && strings.Contains(stale[2].Error(), missing) {
			t.Errorf("reconciled at %s, stale %v", at, stale)
		}
		cancel()
		ok(t, <-ended)
		leading.End(nil)
	})
}

// TestC6_FormsInTwoClusters: an event is shown by the informers of its own cluster only.
func TestC6_FormsInTwoClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForms(t)
		west := sim.NewServer(sim.ConfigMaps)
		away := cache.For[*corev1.ConfigMap](clusterAt(t, "west", west))
		maps := read(f, cache.For[*corev1.ConfigMap](f.watches))
		f.start([]source.Source[types.NamespacedName]{source.Kind(maps, handler.Self()), source.Kind(away, handler.Self())})
		west.Lag(lag)
		f.put("a", "1")
		f.want(time.Second, "0s: a sees 1")
	})
}

// TestS9_KeysWaitForTheirOwnCluster: one of its kinds does not answer. Its keys are parked, keys of
// the other cluster are not, and no worker is occupied.
func TestS9_KeysWaitForTheirOwnCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, all := cluster(t, sim.ConfigMaps)
		west := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		hangs := west.Add(fault.Rule{Match: fault.Match{Resources: []string{"secrets"}}, Hold: true})
		there := clusterAt(t, "west", west)
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a")})
		west.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a")})
		west.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("b")})
		var mu sync.Mutex
		var keys []string
		c := controller.New("test", controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			keys = append(keys, key.Name)
			return controller.Result{}, nil
		}), controller.Options{Logger: silent, Workers: 1})
		c.Watch(source.Kind(cache.For[*corev1.ConfigMap](all), handler.Self()))
		c.Watch(source.Kind(cache.For[*corev1.ConfigMap](there), handler.Self()))
		secrets := source.Kind(cache.For[*corev1.Secret](there), handler.Self())
		c.Watch(secrets)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		defer func() {
			cancel()
			ok(t, <-ended)
			hangs.Remove()
		}()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		s := c.Snapshot()
		if len(keys) != 1 || keys[0] != "a" || !slices.ContainsFunc(s.Queue.Keys, func(k workqueue.KeyState[types.NamespacedName]) bool {
			return k.Key.Name == "b" && strings.Contains(k.ParkReason, "its cluster is not synced: Kind(Secret.v1 (cluster west)): syncing")
		}) {
			t.Errorf("reconciled %q; the queue has %+v", keys, s.Queue.Keys)
		}
		m := &corev1.ConfigMap{ObjectMeta: named("b")}
		api.Put(sim.ConfigMaps, m)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(keys) != 2 || keys[1] != "b" {
			t.Errorf("after an event of the other cluster, reconciled %q", keys)
		}
		west.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("c")})
		time.Sleep(time.Second)
		synctest.Wait()
		ok(t, c.Unwatch(t.Context(), secrets))
		synctest.Wait()
		if len(keys) < 3 || !slices.Contains(keys, "c") {
			t.Errorf("after Unwatch, reconciled %q", keys)
		}
	})
}
