// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/why"
)

// TestFor_ClusterScopedOwner: an owner without a namespace.
func TestFor_ClusterScopedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Serve(sim.Pods, sim.Namespaces)
		w.add = func() {
			spaces := cache.For[*corev1.Namespace](w.mgr.Cache())
			c := controller.New("spaces", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
				return controller.Result{}, nil
			}), controller.Options{})
			c.Watch(source.Kind(spaces, handler.Self()))
			w.mgr.Add(c)
		}
		w.start()
		n := w.api.Put(sim.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
		synctest.Wait()
		w.api.Put(sim.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owned", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(n, corev1.SchemeGroupVersion.WithKind("Namespace"))}}})
		direct := why.For(t.Context(), why.Object{Kind: "Namespace", Name: "team"}, w.mgr).String()
		text := why.For(t.Context(), why.Object{Kind: "pod", Namespace: "default", Name: "owned", Values: true}, w.mgr).String()
		if strings.Contains(text, "default/team") || !strings.Contains(text, "spaces /team: the last Reconcile") {
			t.Errorf("of the Pod:\n%s\nof its owner:\n%s", text, direct)
		}
	})
}

// TestFor_Hang: the API server answers nothing.
func TestFor_Hang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Serve(sim.Pods)
		w.start()
		w.put(site())
		hang := w.api.Add(fault.Rule{Hang: true})
		for _, o := range []why.Object{{Kind: "pod", Namespace: "default", Name: "owned", Values: true}, {Kind: "Pod.v1.", Namespace: "default", Name: "owned", Values: true}, {Kind: "Foo.v1.example.com", Name: "x", Values: true}, {Kind: "event", Name: "x", Values: true}} {
			began := time.Now()
			text := why.For(t.Context(), o, w.mgr).String()
			if took := time.Since(began); took > 1100*time.Millisecond {
				t.Errorf("%s: %s: %s", o, took, text)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began = time.Now()
			w.mgr.Explain(ctx, o)
			if took := time.Since(began); took > 1100*time.Millisecond {
				t.Errorf("Explain %s: %s: %s", o, took, text)
			}
			cancel()
		}
		hang.Remove()
	})
}

// TestTrace_Memory: what a trace keeps for a receiver that does not return.
func TestTrace_Memory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			for range 100 {
				if _, err := w.maps.Get(ctx, key); err != nil {
					return controller.Result{}, err
				}
			}
			return controller.Result{}, nil
		}
		w.start()
		m := site()
		m.Data["value"] = strings.Repeat("x", 100_000)
		w.put(m)
		ctx, cancel := context.WithCancel(t.Context())
		blocked, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- w.mgr.Trace(ctx, web, func(r controller.Traced) { <-blocked })
		}()
		synctest.Wait()
		heap := func() int64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		for i := range 40 {
			m.Data["n"] = fmt.Sprint(i)
			w.put(m)
		}
		if grew := heap() - before; grew > 50<<20 {
			t.Errorf("a blocked receiver keeps %d MB", grew>>20)
		}
		close(blocked)
		cancel()
		<-done
	})
}

// TestTrace_Remove: after Remove of the only controller, a trace cannot see anything.
func TestTrace_Remove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.put(site())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- w.mgr.Trace(ctx, web, func(r controller.Traced) {}) }()
		synctest.Wait()
		testkit.Equal(t, w.mgr.Remove(t.Context(), w.controller), nil)
		err := <-done
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it ends after %s: %v", took, err)
		}
	})
}

// TestHistory_ChainClusterScoped: the write of an object without a namespace has caused the next
// Reconcile.
func TestHistory_ChainClusterScoped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Serve(sim.Namespaces)
		w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			_, err := client.For[*corev1.Namespace](w.mgr.Client()).Apply(ctx, corev1ac.Namespace("team"))
			return controller.Result{}, err
		}
		w.add = func() {
			c := controller.New("spaces", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
				return controller.Result{}, nil
			}), controller.Options{})
			c.Watch(source.Kind(cache.For[*corev1.Namespace](w.mgr.Cache()), handler.Self()))
			w.mgr.Add(c)
		}
		w.start()
		w.put(site())
		synctest.Wait()
		text := why.For(t.Context(), why.Object{Kind: "Namespace", Name: "team"}, w.mgr).String()
		testkit.Contains(t, text, "caused by a write of the Reconcile of site default/web", "no cause in")
	})
}
