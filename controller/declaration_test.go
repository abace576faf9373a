// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

// TestS9_UndeclaredRead: a Reconcile cannot read undeclared kinds, and the error names the kind.
// Handles of one scope count as the same. Outside of a Reconcile everything can be read.
func TestS9_UndeclaredRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, all := cluster(t, sim.ConfigMaps, sim.Secrets, sim.Pods)
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a")})
		maps, secrets, pods := cache.For[*corev1.ConfigMap](all), cache.For[*corev1.Secret](all), cache.For[*corev1.Pod](all)
		some := cache.ForScope[*corev1.ConfigMap](all, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"a": "b"})})
		index := cache.NewIndex(pods, "node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
		var mu sync.Mutex
		got := map[string]error{}
		read := func(ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			key := types.NamespacedName{Namespace: "default", Name: "a"}
			_, got["watched"] = maps.Shared().Get(ctx, key)
			_, got["another handle"] = cache.For[*corev1.ConfigMap](all).Get(ctx, key)
			_, got["declared"] = secrets.List(ctx, cache.ListOptions{})
			_, got["another scope"] = some.List(ctx, cache.ListOptions{})
			_, got["get"] = pods.Get(ctx, key)
			_, got["index"] = index.List(ctx, "n", cache.ListOptions{})
		}
		c := controller.New("test", controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			read(ctx)
			return controller.Result{}, nil
		}), controller.Options{Logger: silent})
		c.Watch(source.Kind(maps, handler.Self()))
		c.Reads(secrets)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		cancel()
		ok(t, <-done)
		const missing = `the controller "test" does not declare `
		for what, want := range map[string]string{
			"watched": "", "another handle": "", "declared": "", "another scope": missing + "ConfigMap.v1 (labels a=b); pass the handle to its Reads",
			"get": "get Pod default/a: " + missing + "Pod.v1;", "index": missing + "Pod.v1",
		} {
			if err := got[what]; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", what, err, want)
			}
		}
		read(t.Context())
		for what, err := range got {
			if err != nil && what != "get" { // there is no pod
				t.Errorf("outside of a Reconcile, %s: %v", what, err)
			}
		}
	})
}

// TestS9_UndeclaredReadWithAnotherContext: the same holds for a Reconcile with another context, and
// for goroutines that it has started.
func TestS9_UndeclaredReadWithAnotherContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, all := cluster(t, sim.ConfigMaps, sim.Secrets, sim.Pods)
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a")})
		maps, secrets, pods := cache.For[*corev1.ConfigMap](all), cache.For[*corev1.Secret](all), cache.For[*corev1.Pod](all)
		errs := map[string]error{}
		read := func(what string) {
			_, errs[what+" undeclared"] = pods.List(context.Background(), cache.ListOptions{})
			_, errs[what+" declared"] = secrets.List(context.Background(), cache.ListOptions{})
			_, errs[what+" another handle"] = cache.For[*corev1.Secret](all).List(context.Background(), cache.ListOptions{})
		}
		c := controller.New("test", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			read("in Reconcile")
			var started sync.WaitGroup
			started.Go(func() { read("started by it") })
			started.Wait()
			return controller.Result{}, nil
		}), controller.Options{Logger: silent})
		c.Watch(source.Kind(maps, handler.Self()))
		c.Reads(secrets)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		read("elsewhere")
		cancel()
		ok(t, <-done)
		const want = `list Pod: the controller "test" does not declare Pod.v1; pass the handle to its Reads; the Reconcile of default/a read it with a context that is not its own`
		for what, err := range errs {
			wrong := strings.HasSuffix(what, "undeclared") && !strings.HasPrefix(what, "elsewhere")
			if wrong && (err == nil || err.Error() != want) || !wrong && err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
