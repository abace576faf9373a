// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

// TestC6_RemovedAndAddedAgain: a controller that replaces a removed one sees the writes of its
// predecessor, although the watches lag.
func TestC6_RemovedAndAddedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		api.Serve(sim.Secrets)
		put(api, "a")
		m := newManager(api, nil)
		maps, secrets := cache.For[*corev1.ConfigMap](m.Cache()), cache.For[*corev1.Secret](m.Cache())
		write := client.For[*corev1.Secret](m.Client())
		began := make(chan struct{}, 100)
		add := func() *controller.Controller[types.NamespacedName] {
			c := controller.New("website", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				began <- struct{}{}
				for _, err := range secrets.All(ctx, cache.ListOptions{}) {
					return controller.Result{}, err
				}
				_, err := write.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, GenerateName: "s-"}})
				return controller.Result{}, err
			}), controller.Options{Logger: silent})
			c.Watch(source.Kind(maps, handler.Self()))
			c.Reads(secrets)
			m.Add(c)
			return c
		}
		c := add()
		api.Lag(500 * time.Millisecond)
		stop, result := start(t, m)
		<-began
		for range 5 { // each removes the previous one, some before its first Reconcile
			synctest.Wait()
			ok(t, m.Remove(t.Context(), c))
			c = add()
		}
		pass(time.Minute)
		if n := api.Stored(sim.Secrets); n != 1 {
			t.Errorf("there are %d Secrets, want 1", n)
		}
		if len(began) == 0 {
			t.Error("the last controller has reconciled nothing")
		}
		stop()
		ok(t, result())
	})
}
