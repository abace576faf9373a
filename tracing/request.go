// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/transport"

	"github.com/setpoint-dev/setpoint/internal/apipath"
)

// Requests returns a wrapper for the Wrap method of a rest.Config. It makes a span for each request
// whose context has one, such as the requests of a Reconcile. Requests of informers and for Leases
// have no span. A span ends when the body of the answer is read. A retry of client-go has a span of
// its own. A request has the headers of otel.GetTextMapPropagator, by default none.
//
// If provider is nil, the spans come from the provider of the Reconcile's span.
func Requests(provider trace.TracerProvider) transport.WrapperFunc {
	return func(base http.RoundTripper) http.RoundTripper {
		return &roundTripper{base, otelhttp.NewTransport(described{base},
			otelhttp.WithTracerProvider(provider),
			otelhttp.WithMeterProvider(noop.NewMeterProvider()), // package metrics has metrics
			otelhttp.WithSpanNameFormatter(func(_ string, req *http.Request) string { return nameOf(req) }),
		)}
	}
}

type roundTripper struct{ base, traced http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if !trace.SpanContextFromContext(req.Context()).IsValid() {
		return t.base.RoundTrip(req)
	}
	return t.traced.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport below, for example to close its
// connections.
func (t *roundTripper) WrappedRoundTripper() http.RoundTripper { return t.base }

// described is below the span.
type described struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d described) RoundTrip(req *http.Request) (*http.Response, error) {
	if span := trace.SpanFromContext(req.Context()); span.IsRecording() {
		t := targetOf(req)
		for _, a := range []attribute.KeyValue{
			attribute.String("k8s.verb", t.Verb), attribute.String("k8s.api.group", t.Group),
			attribute.String("k8s.resource", t.Resource), attribute.String("k8s.subresource", t.Subresource),
			attribute.String("k8s.namespace.name", t.Namespace), attribute.String("k8s.object.name", t.Name),
		} {
			if a.Value.AsString() != "" {
				span.SetAttributes(a)
			}
		}
	}
	return d.base.RoundTrip(req)
}

// nameOf returns the verb and the resource, such as "update deployments/status".
func nameOf(req *http.Request) string {
	t := targetOf(req)
	name := t.Verb
	if t.Resource != "" {
		name += " " + t.Resource
	}
	if t.Subresource != "" {
		name += "/" + t.Subresource
	}
	return name
}

func targetOf(req *http.Request) apipath.Target {
	path := req.URL.Path
	if !strings.HasPrefix(path, "/api/") && !strings.HasPrefix(path, "/apis/") { // behind a proxy
		for _, api := range []string{"/api/", "/apis/"} {
			if at := strings.Index(path, api); at > 0 {
				path = path[at:]
			}
		}
	}
	return apipath.Parse(req.Method, path, req.URL.RawQuery)
}
