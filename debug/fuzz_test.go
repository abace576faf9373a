// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// secretKeeper reconciles ConfigMaps. It reads a Secret in three forms, and writes one.
type secretKeeper struct {
	maps    *cache.Handle[*corev1.ConfigMap]
	secrets *cache.Handle[*corev1.Secret]
	untyped *cache.Handle[*unstructured.Unstructured]
	names   *cache.Handle[*metav1.PartialObjectMetadata]
	to      *client.Client
	began   chan struct{} // closed by the first Reconcile that succeeds
	once    sync.Once
}

func (k *secretKeeper) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := k.maps.Get(ctx, key)
	if err != nil {
		return controller.Result{}, err
	}
	if _, err = k.secrets.Get(ctx, key); err != nil {
		return controller.Result{}, err
	}
	if _, err = k.untyped.Get(ctx, key); err != nil {
		return controller.Result{}, err
	}
	if _, err = k.names.Get(ctx, key); err != nil {
		return controller.Result{}, err
	}
	out := corev1ac.Secret("out", key.Namespace).WithStringData(map[string]string{"password": "hunter2", "at": time.Now().String(), "copy": m.Data["a"]})
	if _, err = client.For[*corev1.Secret](k.to).Apply(ctx, out); err == nil {
		k.once.Do(func() { close(k.began) })
	}
	return controller.Result{}, err
}

// newKeeper returns handlers of a manager that runs until the test ends, and reconciles all the
// time. The first allows nothing, the second all.
func newKeeper(t testing.TB) (off, on http.Handler) {
	api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
	shop := metav1.ObjectMeta{Namespace: "default", Name: "shop"}
	api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: shop, Data: map[string]string{"a": "<b>"}})
	shop.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"stringData":{"password":"hunter2"}}`}
	api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: shop, Data: map[string][]byte{"password": []byte("hunter2")}})
	m := manager.New(&rest.Config{Host: sim.Host, Transport: api, QPS: -1}, manager.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
	secret := cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("Secret")}
	r := &secretKeeper{
		maps: cache.For[*corev1.ConfigMap](m.Cache()), secrets: cache.For[*corev1.Secret](m.Cache()),
		untyped: cache.ForScope[*unstructured.Unstructured](m.Cache(), secret), names: cache.ForScope[*metav1.PartialObjectMetadata](m.Cache(), secret),
		to: m.Client(), began: make(chan struct{}),
	}
	c := controller.New("website", r, controller.Options{})
	c.Watch(source.Kind(r.maps, handler.Self()))
	c.Watch(source.Kind(r.secrets, handler.Self()))
	c.Reads(r.untyped, r.names)
	m.Add(c)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		for ctx.Err() == nil {
			c.Requeue(types.NamespacedName{Namespace: "default", Name: "shop"})
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-busy
		testkit.Equal(t, <-ended, nil)
		api.Close()
	})
	<-r.began
	return debug.Handler(m, debug.Options{}), debug.Handler(m, debug.Options{Actions: true, Values: true})
}

// FuzzHandler: no request makes a handler panic or fail, no answer has content of a Secret, and
// JSON is valid, without HTML.
func FuzzHandler(f *testing.F) {
	for _, seed := range [][4]string{
		{"GET", "/debug/", "", ""},
		{"GET", "/debug/why", "kind=ConfigMap&namespace=default&name=shop", ""},
		{"GET", "/debug/why", "kind=secrets&namespace=default&name=shop", ""},
		{"GET", "/debug/why", "kind=Pod&namespace=default&name=%3Cb%3E", ""},
		{"GET", "/debug/why", "kind=Pod.v1.&name=..%2F..%2Fsecrets%2Fshop", ""},
		{"GET", "/debug/why", "controller=website&key=default/out", ""},
		{"GET", "/debug/trace", "kind=ConfigMap&namespace=default&name=shop&seconds=1", ""},
		{"HEAD", "/debug/trace", "kind=Secret&namespace=default&name=shop", ""},
		{"GET", "/debug/failing", "controller=website&reason=error&limit=1", ""},
		{"GET", "/debug/keys", "controller=website&state=waiting&reason=any&q=SHOP&sort=reason", ""},
		{"GET", "/debug/controllers/", "", ""},
		{"GET", "/debug/controllers/website", "", ""},
		{"GET", "/debug/controllers/<b>", "", ""},
		{"GET", "/debug/informers/", "", ""},
		{"GET", "/debug/shards/", "", ""},
		{"GET", "/debug/rbac", "", ""},
		{"GET", "/debug/stream", "", ""},
		{"GET", "/debug/pprof/", "", ""},
		{"GET", "/debug/pprof/goroutine", "debug=1", ""},
		{"GET", "/debug/page.js", "a=%zz", ""},
		{"POST", "/debug/requeue", "", `{"controller": "website", "key": "default/shop"}`},
		{"POST", "/debug/pause", "", `{"controller": "website", "key": "default/shop"}`},
		{"POST", "/debug/resume", "", `{"controller": "website", "key": "default/shop"}`},
		{"POST", "/debug/resume", "", `{"controller": "website", "key": "\ud800<b>"} x`},
		{"DELETE", "/debug//why", ";&=&=", "x"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	off, on := newKeeper(f)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		if !strings.HasPrefix(path, "/") || path == "/debug/pprof/profile" || path == "/debug/pprof/trace" {
			t.Skip("these take long")
		}
		for _, h := range []http.Handler{off, on} {
			ctx, cancel := context.WithTimeout(logr.NewContextWithSlogLogger(t.Context(), slog.New(slog.DiscardHandler)), 15*time.Millisecond)
			r, err := http.NewRequestWithContext(ctx, method, "http://localhost/", strings.NewReader(body))
			if err != nil {
				cancel()
				t.Skip("no HTTP method")
			}
			r.URL = &url.URL{Path: path, RawQuery: query}
			if body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			cancel()
			checkAnswer(t, w, path+query+body)
		}
	})
}

func checkAnswer(t *testing.T, w *httptest.ResponseRecorder, input string) {
	t.Helper()
	if w.Code >= http.StatusInternalServerError && w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	for _, secret := range []string{"hunter2", "aHVudGVyMg"} {
		if bytes.Contains(w.Body.Bytes(), []byte(secret)) && !strings.Contains(input, secret) {
			t.Errorf("an answer has content of a Secret: %s", w.Body)
		}
	}
	kind := w.Header().Get("Content-Type")
	if w.Code >= http.StatusBadRequest && (kind != "text/plain; charset=utf-8" || w.Header().Get("X-Content-Type-Options") != "nosniff") {
		t.Errorf("status %d has the headers %v", w.Code, w.Header())
	}
	switch kind {
	case "application/json":
		checkJSON(t, w.Body.Bytes())
	case "application/x-ndjson":
		for line := range bytes.Lines(w.Body.Bytes()) {
			checkJSON(t, line)
		}
	case "text/event-stream":
		for line := range bytes.Lines(w.Body.Bytes()) {
			if data, is := bytes.CutPrefix(line, []byte("data: ")); is {
				checkJSON(t, data)
			}
		}
	}
}

func checkJSON(t *testing.T, text []byte) {
	t.Helper()
	if text = bytes.TrimSpace(text); len(text) > 0 && (!json.Valid(text) || bytes.ContainsRune(text, '<')) {
		t.Errorf("not JSON, or HTML: %s", text)
	}
}
