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
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS7_InformerFactory: a component that is built on client-go's factory, and starts and awaits
// it, runs beside a controller in one manager: they share one LIST and one WATCH, and both stop
// with the manager (M1).
func TestS7_InformerFactory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		m := newManager(api, nil)
		informers := factory.Of(m)
		maps := informers.Core().V1().ConfigMaps()
		lister := maps.Lister()
		reconciled := make(chan string, 10)
		configMaps(m, "test", func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
			reconciled <- key.Name
			return controller.Result{}, nil
		})
		listed := make(chan string, 1)
		m.AddEverywhere("component", func(ctx context.Context) error {
			defer informers.Shutdown()
			informers.StartWithContext(ctx)
			if err := informers.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
				return err
			}
			obj, err := lister.ConfigMaps("default").Get("a")
			if err != nil {
				return err
			}
			listed <- obj.Name
			<-ctx.Done()
			return nil
		})
		testkit.Equal(t, len(api.Requests()), 0, "requests before the manager runs")
		stop, result := start(t, m)
		testkit.Equal(t, <-listed+<-reconciled, "aa")
		testkit.Equal(t, api.Count("", sim.ConfigMaps), 1) // the watch contained the list
		stop()
		ok(t, result())
		testkit.Equal(t, maps.Informer().IsStopped(), true, "the informer outlives the manager")
	})
}

// TestInformerFactory_Client: a caller's constructor gets a clientset of the manager. Its informer
// stops with the manager.
func TestInformerFactory_Client(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		m := newManager(api, nil)
		informer := factory.Of(m).InformerFor(&corev1.ConfigMap{}, func(c kubernetes.Interface, resync time.Duration) toolscache.SharedIndexInformer {
			testkit.Equal(t, testkit.Err(c.CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})), nil, "the client")
			return coreinformers.NewConfigMapInformer(c, "default", resync, toolscache.Indexers{})
		})
		stop, result := start(t, m)
		synctest.Wait()
		testkit.Equal(t, len(informer.GetStore().ListKeys()), 1)
		testkit.Equal(t, informer.HasSynced(), true)
		stop()
		ok(t, result())
		testkit.Equal(t, informer.IsStopped(), true, "the informer outlives the manager")
	})
}
