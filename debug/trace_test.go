// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

const traceOfShop = "/debug/trace?kind=configmap&namespace=default&name=shop"

// TestTrace: a trace has a line for each Reconcile, with values if they are on, and ends by itself.
func TestTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		defer api.Close()
		m := newManager(t, api)
		maps := cache.For[*corev1.ConfigMap](m.Cache())
		c := controller.New("site", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			_, err := maps.Get(ctx, key)
			return controller.Result{}, err
		}), controller.Options{})
		c.Watch(source.Kind(maps, handler.Self()))
		m.Add(c)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		put := func(value string) {
			api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}, Data: map[string]string{"value": value}})
			synctest.Wait()
		}
		put("first")
		h := debug.Handler(m, debug.Options{Values: true})
		w := httptest.NewRecorder()
		done := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(done)
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, traceOfShop, http.NoBody))
		}()
		time.Sleep(2 * time.Second)
		put("second")
		put("third")
		<-done
		testkit.Equal(t, time.Since(began), 10*time.Minute, "it ends after")
		var got []string
		for line := range strings.Lines(w.Body.String()) {
			var r controller.Traced
			if line != "\n" && json.Unmarshal([]byte(line), &r) == nil && len(r.Reads) == 1 {
				var read corev1.ConfigMap
				_ = json.Unmarshal(r.Reads[0].Value.JSON, &read)
				got = append(got, r.Key+" "+read.Data["value"])
			}
		}
		testkit.Equal(t, strings.Join(got, ", "), "default/shop second, default/shop third")
		if h := w.Header(); h.Get("Content-Type") != "application/x-ndjson" || h.Get("X-Content-Type-Options") != "nosniff" || !w.Flushed {
			t.Errorf("the headers are %v", h)
		}
		stop()
		testkit.Equal(t, <-ended, nil)
	})
}

// TestTrace_BadInput: each mistake is one sentence.
func TestTrace_BadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, nil)
		on, off := debug.Handler(m, debug.Options{Values: true}), debug.Handler(m, debug.Options{})
		for _, c := range []struct {
			h    http.Handler
			path string
			code int
			says string
		}{
			{off, traceOfShop, http.StatusForbidden, "a trace has values of objects, which are off; set debug.Options.Values"},
			{on, traceOfShop + "&seconds=601", http.StatusBadRequest, `the parameter seconds is "601"; use 1 to 600`},
			{on, traceOfShop + "&seconds=99999999999999999999", http.StatusBadRequest, `the parameter seconds is "99999999999999999999"; use 1 to 600`},
			{on, traceOfShop + "&seconds=99999999999", http.StatusBadRequest, `the parameter seconds is "99999999999"; use 1 to 600`},
			{on, "/debug/trace?kind=configmap", http.StatusBadRequest, "the parameter name is missing; use for example ?kind=Website&namespace=default&name=shop"},
			{on, traceOfShop, http.StatusConflict, `no controller of this process watches the kind "configmap"`},
		} {
			if w := get(t, c.h, http.MethodGet, c.path); w.Code != c.code || strings.TrimSpace(w.Body.String()) != c.says {
				t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
			}
		}
	})
}
