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
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/testkit/storages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(storages.Main{M: m}) }

// newCache returns a cache of the API server.
func newCache(t testing.TB, api *sim.Server) *cache.Cache {
	t.Helper()
	c, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	return cache.New(c, cache.Options{Storage: storages.Current()})
}

// runs runs an informer as the host program, until stop is called.
func runs(informer toolscache.SharedIndexInformer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}

// synced waits for a handle.
func synced[T cache.Object](t testing.TB, h *cache.Handle[T]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	testkit.NoError(t, h.WaitForSync(ctx))
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
