// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/why"
)

// TestTrace_Race: traces, actions and explanations at once, also of goroutines that go on.
func TestTrace_Race(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.Workers = 4
		w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			go func() {
				for range 20 {
					_, _ = w.maps.Get(ctx, key)
				}
			}()
			_, err := client.For[*corev1.ConfigMap](w.mgr.Client()).Apply(ctx, corev1ac.ConfigMap("web", "default").WithData(map[string]string{"value": time.Now().String()}))
			return controller.Result{}, err
		}
		w.start()
		w.put(site())
		o := web
		o.Values = true
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					_ = w.mgr.Trace(ctx, o, func(r controller.Traced) { _ = fmt.Sprint(r) })
					cancel()
					_ = why.For(t.Context(), o, w.mgr).String()
					_, _ = w.controller.Act(t.Context(), []string{"requeue", "pause", "resume"}[i%3], "default/web", "me")
					for k := range w.controller.Keys() {
						_ = k.Key
					}
					_, _ = w.controller.MarshalJSON()
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Wait()
	})
}
