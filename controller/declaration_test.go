// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
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

// TestC4_AnUndeclaredReadIsAMistakeInTheProgram: no retry fixes it. While inputs come and go, one
// that was just removed may be read, so the key is retried.
func TestC4_AnUndeclaredReadIsAMistakeInTheProgram(t *testing.T) {
	for name, unwatch := range map[string]bool{"never declared": false, "an input was removed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, all := cluster(t, sim.ConfigMaps, sim.Secrets)
				api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a")})
				maps, secrets := cache.For[*corev1.ConfigMap](all), cache.For[*corev1.Secret](all)
				var reconciles atomic.Int32
				c := controller.New("test", controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
					reconciles.Add(1)
					_, err := secrets.List(ctx, cache.ListOptions{})
					if err != nil {
						err = fmt.Errorf("its credentials: %w", err)
					}
					return controller.Result{RequeueAfter: time.Minute}, err
				}), controller.Options{Logger: silent})
				c.Watch(source.Kind(maps, handler.Self()))
				removed := source.Kind(secrets, handler.Map(func(context.Context, *corev1.Secret) ([]types.NamespacedName, error) { return nil, nil }))
				if unwatch {
					c.Watch(removed)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- c.Run(ctx) }()
				synctest.Wait()
				if unwatch {
					ok(t, c.Unwatch(ctx, removed))
					reconciles.Store(0)
				}
				time.Sleep(2 * time.Hour)
				failing := c.Failing()
				cancel()
				ok(t, <-done)
				if n := reconciles.Load(); unwatch != (n > 10) || !unwatch && n != 1 {
					t.Errorf("%d Reconciles", n)
				}
				if len(failing) != 1 || failing[0].Terminal == unwatch {
					t.Errorf("Failing returned %+v", failing)
				}
			})
		})
	}
}

// TestRequeueAfter_Jitter spreads keys.
func TestRequeueAfter_Jitter(t *testing.T) {
	for jitter, longest := range map[float64]time.Duration{0: time.Hour, 0.5: 90 * time.Minute, 1: 2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var at []time.Duration
			began := time.Now()
			c := controller.New("test", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
				if after := time.Since(began); after > 0 {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, after)
					return controller.Result{}, nil
				}
				return controller.Result{RequeueAfter: time.Hour, Jitter: jitter}, nil
			}), controller.Options{Logger: silent})
			for n := range 1000 {
				c.Queue().Add(types.NamespacedName{Name: strconv.Itoa(n)})
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			time.Sleep(3 * time.Hour)
			cancel()
			ok(t, <-done)
			if len(at) != 1000 || at[0] < time.Hour || at[999] > longest {
				t.Fatalf("with %v: %d keys, from %s to %s", jitter, len(at), at[0], at[len(at)-1])
			}
			// Far from chance: the median of 1000 is within a fifth of the middle.
			if middle, spread := (time.Hour+longest)/2, longest-time.Hour; at[500] < middle-spread/5 || at[500] > middle+spread/5 {
				t.Errorf("with %v: half of the keys are due by %s", jitter, at[500])
			}
		})
	}
}

// TestRequeueAfter_WrongJitter is an error that no retry fixes.
func TestRequeueAfter_WrongJitter(t *testing.T) {
	for _, jitter := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1)} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
				return controller.Result{RequeueAfter: time.Minute, Jitter: jitter}, nil
			})
			r.start()
			at := r.after(time.Hour)
			want := fmt.Sprintf("controller.Result.Jitter is %v; give a part of RequeueAfter, from 0 to 1", jitter)
			if failing := r.control.Failing(); len(at) != 1 || len(failing) != 1 || failing[0].Err != want {
				t.Errorf("reconciled at %v, %+v", at, failing)
			}
		})
	}
}
