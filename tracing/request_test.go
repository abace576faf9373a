// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/tracing"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// request sends one request, in the context of a span if traced, and returns its spans but this
// one.
func request(t *testing.T, traced bool, method, url string, base roundTrip) []sdk.ReadOnlySpan {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	ctx, end := t.Context(), func() {}
	if traced {
		outer, span := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("").Start(ctx, "outer")
		ctx, end = outer, func() { span.End() }
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://api.test"+url, nil)
	testkit.NoError(t, err)
	if resp, err := tracing.Requests(nil)(base).RoundTrip(req); err == nil {
		_ = resp.Body.Close()
	}
	end()
	all := spans.Ended()
	testkit.Equal(t, len(all), len(spans.Started()), "a span has not ended")
	if traced {
		all = all[:len(all)-1]
	}
	return all
}

func succeeds(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestRequests_AreNamedByVerbAndResource(t *testing.T) {
	for _, c := range []struct{ method, url, want string }{
		{http.MethodGet, "/api/v1/namespaces/default/pods", "list pods"},
		{http.MethodGet, "/api/v1/namespaces/default/pods?watch=true", "watch pods"},
		{http.MethodPut, "/apis/apps/v1/namespaces/default/deployments/web/status", "update deployments/status"},
		{http.MethodPatch, "/k8s/clusters/c/apis/apps/v1/namespaces/default/deployments/web", "patch deployments"},
		{http.MethodGet, "/api/v1/namespaces/a/services/b/proxy/apis/x/v1/things", "get services/proxy"},
		{http.MethodGet, "/version", "get"},
	} {
		all := request(t, true, c.method, c.url, succeeds)
		if len(all) != 1 || all[0].Name() != c.want || all[0].Status().Code != codes.Unset {
			t.Errorf("%s %s has the spans %v, want %q", c.method, c.url, all, c.want)
		}
	}
}

// TestRequests_OnlyWithASpan: informers and elections would make a trace of each request.
func TestRequests_OnlyWithASpan(t *testing.T) {
	called := 0
	all := request(t, false, http.MethodGet, "/api/v1/pods", func(req *http.Request) (*http.Response, error) {
		called++
		return succeeds(req)
	})
	testkit.Equal(t, called, 1)
	testkit.Len(t, all, 0)
}

func TestRequests_WithoutAnAnswer(t *testing.T) {
	all := request(t, true, http.MethodGet, "/api/v1/pods", func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") })
	if len(all) != 1 || all[0].Status().Code != codes.Error || all[0].Status().Description != "refused" {
		t.Errorf("the spans are %v", all)
	}
}

// TestRequests_PropagateAsConfigured: the API server gets the header of the request's span only if
// the program has a propagator.
func TestRequests_PropagateAsConfigured(t *testing.T) {
	none := propagation.NewCompositeTextMapPropagator() // as the default
	t.Cleanup(func() { otel.SetTextMapPropagator(none) })
	for _, on := range []bool{false, true} {
		otel.SetTextMapPropagator(none)
		if on {
			otel.SetTextMapPropagator(propagation.TraceContext{})
		}
		var header string
		all := request(t, true, http.MethodGet, "/api/v1/pods", func(req *http.Request) (*http.Response, error) {
			header = req.Header.Get("traceparent")
			return succeeds(req)
		})
		if want := "00-" + all[0].SpanContext().TraceID().String() + "-" + all[0].SpanContext().SpanID().String() + "-01"; on && header != want || !on && header != "" {
			t.Errorf("with a propagator %t, the header is %q", on, header)
		}
	}
}

// TestRequests_KeepTheTransportBelow: Close and Disconnect of the client find it.
func TestRequests_KeepTheTransportBelow(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	closed := 0
	cfg := api.Config()
	cfg.Transport = closing{api, &closed}
	cfg.Wrap(tracing.Requests(nil))
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	if _, err := client.For[*corev1.ConfigMap](c).GetLive(context.WithoutCancel(t.Context()), types.NamespacedName{Namespace: "default", Name: "a"}); err == nil {
		t.Error("there is no such ConfigMap")
	}
	c.Close()
	testkit.Equal(t, closed, 1, "idle connections were closed")
}

type closing struct {
	http.RoundTripper

	closed *int
}

func (c closing) CloseIdleConnections() { *c.closed++ }
