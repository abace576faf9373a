// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/why"
)

const scope = "github.com/setpoint-dev/setpoint/tracing"

// Reconciles returns a Hook for a manager or a controller. It makes a span for each Reconcile,
// which is in the context of the Reconcile. If provider is nil, it is otel.GetTracerProvider.
func Reconciles(provider trace.TracerProvider) *hook.Hook {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	r := &reconciles{provider.Tracer(scope)}
	return hook.Join(hook.On(r.begin), hook.On(r.end))
}

type reconciles struct{ tracer trace.Tracer }

// spanKey is the key of the span: another observer, which may be of this package, may derive a
// context with a span of its own.
type spanKey struct{ of *reconciles }

func (r *reconciles) begin(e *hook.Reconciling) {
	info, _ := controller.InfoFromContext(e.Context)
	ctx, span := r.tracer.Start(e.Context, "Reconcile "+e.Controller,
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(linksOf(info)...),
		trace.WithAttributes(attribute.String("setpoint.controller", e.Controller)))
	e.Context = context.WithValue(ctx, spanKey{r}, span)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String("setpoint.key", cut(fmt.Sprint(info.Key))),
		attribute.String("setpoint.reconcile_id", info.ReconcileID),
		attribute.Int("setpoint.attempt", info.Attempt),
	)
	if namespace := namespaceOf(info.Key); namespace != "" {
		span.SetAttributes(attribute.String("k8s.namespace.name", namespace))
	}
	if !info.Queued.IsZero() {
		span.SetAttributes(attribute.Float64("setpoint.queue_wait", time.Since(info.Queued).Seconds()))
	}
}

func linksOf(info controller.Info) (links []trace.Link) {
	for _, value := range info.TraceParents() {
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{header: value})
		if of := trace.SpanContextFromContext(ctx); of.IsValid() {
			links = append(links, trace.Link{SpanContext: of})
		}
	}
	return links
}

func namespaceOf(key any) string {
	switch key := key.(type) {
	case types.NamespacedName:
		return key.Namespace
	case handler.ClusterKey:
		return key.Namespace
	}
	return ""
}

func (r *reconciles) end(e *hook.Reconciled) {
	span, ok := e.Context.Value(spanKey{r}).(trace.Span)
	if !ok {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("setpoint.outcome", string(e.Outcome)))
	if e.TimedOut {
		span.SetAttributes(attribute.Bool("setpoint.timed_out", true))
	}
	if e.GaveUp {
		span.SetAttributes(attribute.Bool("setpoint.gave_up", true))
	}
	switch e.Outcome {
	case hook.Failed, hook.FailedTerminally, hook.Panicked:
		span.SetAttributes(attribute.String("error.type", string(reasonOf(e))))
		span.SetStatus(codes.Error, cut(e.Err.Error()))
	}
}

func reasonOf(e *hook.Reconciled) why.Reason {
	switch {
	case e.Outcome == hook.Panicked:
		return why.Panicked
	case e.TimedOut:
		return why.TimedOut
	}
	return why.OfError(e.Err)
}

// cut limits a text to 1 KiB of valid UTF-8: an exporter loses what protobuf refuses.
func cut(text string) string {
	if len(text) > 1<<10 {
		text = text[:1<<10] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

const header = "traceparent"

// TraceParent returns the span of a context for client.TraceParent, as a W3C traceparent. It is
// empty without a span.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[header]
}
