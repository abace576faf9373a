// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package factory_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testkit.Storages{M: m}) }

// newCache returns a cache of the API server.
func newCache(t testing.TB, api *sim.Server) *cache.Cache {
	t.Helper()
	c, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	return cache.New(c, cache.Options{Storage: testkit.Storage()})
}

// run runs f until stop is called, which joins it.
func run(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}

// start runs the cache until stop is called, which joins it.
func start(t testing.TB, c *cache.Cache) (stop func()) {
	t.Helper()
	return run(func(ctx context.Context) {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// runs runs an informer as the host program.
func runs(informer toolscache.SharedIndexInformer) (stop func()) {
	return run(informer.RunWithContext)
}

// synced waits for a handle.
func synced[T cache.Object](t testing.TB, h *cache.Handle[T]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	testkit.NoError(t, h.WaitForSync(ctx))
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"name": name}}}
	for _, d := range data {
		c.Data = map[string]string{"data": d}
	}
	return c
}

func deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// forbidden answers the requests for a resource with 403.
func forbidden(of sim.Resource) func(*sim.Request) (*http.Response, error) {
	return func(r *sim.Request) (*http.Response, error) {
		if r.Resource.Resource != of.Name {
			return nil, nil
		}
		return r.Fail(http.StatusForbidden, "no right to "+r.Verb)
	}
}

// noStreaming refuses to stream initial lists, like an API server without the feature.
func noStreaming(r *sim.Request) (*http.Response, error) {
	if r.Streaming() {
		return r.Fail(http.StatusUnprocessableEntity, "sendInitialEvents is forbidden")
	}
	return nil, nil
}
