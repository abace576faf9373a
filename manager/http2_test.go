// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// http2API serves an API over real HTTP/2 connections.
func http2API(t *testing.T, api http.RoundTripper) *rest.Config {
	t.Helper()
	to, err := url.Parse(sim.Host)
	testkit.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: api, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	s := httptest.NewUnstartedServer(proxy)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// TestM1_HTTP2ConnectionsAreClosed: although requests have left them only just before.
func TestM1_HTTP2ConnectionsAreClosed(t *testing.T) {
	cfg := http2API(t, newAPI())
	for range 50 {
		before := goleak.IgnoreCurrent()
		m := manager.New(cfg, manager.Options{Name: "test", Logger: silent})
		configMaps(m, "maps", func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		})
		ctx, stop := context.WithCancel(t.Context())
		m.AddEverywhere("stopper", func(ctx context.Context) error {
			_ = m.WaitReady(ctx)
			stop()
			return nil
		})
		testkit.NoError(t, m.Run(ctx))
		testkit.NoError(t, goleak.Find(before))
	}
}
