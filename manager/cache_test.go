// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// TestCache_Defaults: Options.Cache applies to handles, the informer factory and further clusters,
// and its Hook is joined with the manager's.
func TestCache_Defaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "b"}})
		var started, also atomic.Int32
		m := newManager(api, func(o *manager.Options) {
			o.Cache.Namespaces = cache.NewSet("other")
			o.Cache.Hook = hook.On(func(*hook.CacheStarted) { started.Add(1) })
			o.Hook = hook.On(func(*hook.CacheStarted) { also.Add(1) })
		})
		m.AddCluster("west", at("http://west.test", newAPI()))
		lister := factory.Of(m).Core().V1().ConfigMaps().Lister()
		reconciled := make(chan string, 10)
		configMaps(m, "test", func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
			reconciled <- key.String()
			return controller.Result{}, nil
		})
		stop, result := start(t, m)
		testkit.Equal(t, <-reconciled, "other/b")
		ok(t, m.Idle(t.Context()))
		testkit.Equal(t, testkit.Err(lister.ConfigMaps("other").Get("b")), nil)
		stop()
		ok(t, result())
		for _, r := range api.Requests() {
			if r.Verb != "discover" && r.Resource.Resource != "selfsubjectaccessreviews" && r.Namespace != "other" {
				t.Errorf("%s in %q", r.Verb, r.Namespace)
			}
		}
		testkit.Len(t, reconciled, 0)
		testkit.Equal(t, started.Load(), 2)
		testkit.Equal(t, also.Load(), 2)
	})
}

// TestCache_EmptyNamespaces: Run returns one clear error for an empty set of namespaces, and makes
// no request.
func TestCache_EmptyNamespaces(t *testing.T) {
	api := newAPI()
	m := newManager(api, func(o *manager.Options) { o.Cache.Namespaces = cache.ParseNamespaces(",") })
	err := m.Run(t.Context())
	if err == nil || strings.Count(err.Error(), "cache.Options.Namespaces is empty, so nothing would be read; add a namespace") != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	testkit.Equal(t, len(api.Requests()), 0)
}

// TestCache_FewLinesForManyBrokenObjects: the lines about broken objects of a kind are limited.
func TestCache_FewLinesForManyBrokenObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		for n := range 1000 {
			put(api, fmt.Sprint("m", n))
		}
		var out bytes.Buffer
		m := newManager(api, func(o *manager.Options) { o.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		maps := cache.ForScope[*corev1.ConfigMap](m.Cache(), cache.Scope{Transform: cache.NewTransform("bad", func(*corev1.ConfigMap) { panic("no") })})
		stop, result := start(t, m)
		ok(t, maps.WaitForSync(t.Context()))
		synctest.Wait()
		testkit.Equal(t, maps.State().BrokenCount, 1000, maps.State())
		stop()
		ok(t, result())
		testkit.Count(t, out.String(), "an object cannot be decoded or transformed", 10)
	})
}
