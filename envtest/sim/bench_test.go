// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// copier makes a Secret for each ConfigMap.
type copier struct {
	maps    func(context.Context, types.NamespacedName) (*corev1.ConfigMap, error)
	secrets client.Writer[*corev1.Secret]
}

// Reconcile implements controller.Reconciler.
func (c copier) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := c.maps(ctx, key)
	if err != nil {
		return controller.Result{}, err
	}
	_, err = c.secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, StringData: m.Data, Type: corev1.SecretTypeOpaque,
	})
	if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return controller.Result{}, err
}

// converge runs a manager with one controller over n objects until it is idle, and checks it.
func converge(tb testing.TB, n int) {
	tb.Helper()
	api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
	for i := range n {
		api.Put(sim.ConfigMaps, configMap(fmt.Sprintf("m%03d", i), "x"))
	}
	mgr := manager.New(api.Config(), manager.Options{Name: "bench", Logger: slog.New(slog.DiscardHandler)})
	maps := cache.For[*corev1.ConfigMap](mgr.Cache())
	c := controller.New("copy", copier{maps.Get, client.For[*corev1.Secret](mgr.Client())}, controller.Options{Workers: 2})
	c.Watch(source.Kind(maps, handler.Self()))
	mgr.Add(c)
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Run(ctx) }()
	testkit.Equal(tb, mgr.Idle(ctx), nil)
	secrets, err := coreclient.NewForConfigOrDie(config(api, true)).Secrets("").List(ctx, metav1.ListOptions{})
	testkit.Equal(tb, err, nil)
	testkit.Len(tb, secrets.Items, n)
	cancel()
	testkit.NoError(tb, <-done)
}

func single(tb testing.TB) {
	tb.Helper()
	api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
	api.Put(sim.ConfigMaps, configMap("m", "x"))
	c, err := client.New(api.Config(), client.Options{})
	testkit.NoError(tb, err)
	maps := client.For[*corev1.ConfigMap](c)
	key := types.NamespacedName{Namespace: "default", Name: "m"}
	testkit.NoError(tb, testkit.Err((copier{maps.GetLive, client.For[*corev1.Secret](c)}).Reconcile(tb.Context(), key)))
	testkit.NotEqual(tb, api.Object(sim.Secrets, "default", "m"), nil)
}

func BenchmarkManager100(b *testing.B) {
	for b.Loop() {
		converge(b, 100)
	}
}

func BenchmarkManager1(b *testing.B) {
	for b.Loop() {
		converge(b, 1)
	}
}

func BenchmarkSingleReconcile(b *testing.B) {
	for b.Loop() {
		single(b)
	}
}

func BenchmarkList10000(b *testing.B) {
	api := sim.NewServer(sim.ConfigMaps)
	for i := range 10_000 {
		api.Put(sim.ConfigMaps, configMap(fmt.Sprintf("m%05d", i), "x"))
	}
	for _, protobuf := range []bool{false, true} {
		b.Run(map[bool]string{false: "json", true: "protobuf"}[protobuf], func(b *testing.B) {
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, sim.Host+"/api/v1/configmaps", nil)
				testkit.NoError(b, err)
				if protobuf {
					r.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
				}
				resp, err := api.RoundTrip(r)
				testkit.NoError(b, err)
				n, err := io.Copy(io.Discard, resp.Body)
				b.SetBytes(n)
				testkit.NoError(b, err)
			}
		})
	}
}

// TestMemory: 10,000 objects with 100 watchers, which have read everything, need under 500 MB.
func TestMemory(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	for i := range 10_000 {
		api.Put(sim.ConfigMaps, configMap(fmt.Sprintf("m%05d", i), "x"))
	}
	begin := time.Now()
	for i := range 100 {
		accept := []string{"application/json", "application/vnd.kubernetes.protobuf", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}[i%3]
		body := open(t, api, "/api/v1/configmaps?watch=1&allowWatchBookmarks=true", accept)
		read := 0
		for read < 10_000*len(`{"type":"ADDED","object":`) {
			n, err := body.Read(make([]byte, 64<<10))
			testkit.NoError(t, err)
			read += n
		}
	}
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	t.Logf("%d MB in use, %d MB from the system, after %s", stats.HeapAlloc>>20, stats.Sys>>20, time.Since(begin))
	testkit.AtMost(t, stats.Sys, 500<<20)
	runtime.KeepAlive(api)
}

// open opens a watch that ends with the test.
func open(t *testing.T, api *sim.Server, path, accept string) io.Reader {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, sim.Host+path, nil)
	testkit.NoError(t, err)
	r.Header.Set("Accept", accept)
	resp, err := api.RoundTrip(r)
	testkit.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body
}
