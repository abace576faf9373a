// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/tracing"
	"github.com/setpoint-dev/setpoint/why"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	annotation = "tracing.k8s.io/traceparent"
	given      = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

// operator has a client and a cache whose requests are traced.
type operator struct {
	t        *testing.T
	api      *sim.Server
	spans    *tracetest.SpanRecorder
	provider *sdk.TracerProvider
	client   *client.Client
	cache    *cache.Cache
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{t: t, api: sim.NewServer(sim.ConfigMaps, sim.Secrets), spans: tracetest.NewSpanRecorder()}
	o.provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(o.spans))
	cfg := o.api.Config()
	cfg.Wrap(tracing.Requests(nil))
	var err error
	o.client, err = client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	o.cache = cache.New(o.client, cache.Options{})
	o.run(o.cache.Run)
	return o
}

// run runs something until the test ends.
func (o *operator) run(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = func() {
		if cancel(); done != nil {
			testkit.Equal(o.t, <-done, nil)
			done = nil
		}
	}
	o.t.Cleanup(stop)
	return stop
}

type reconcile = controller.Func[types.NamespacedName]

func (o *operator) controller(name string, f reconcile, options controller.Options, more ...*hook.Hook) *controller.Controller[types.NamespacedName] {
	options.Logger = slog.New(slog.DiscardHandler)
	options.Hook = hook.Join(append([]*hook.Hook{tracing.Reconciles(o.provider)}, more...)...)
	return controller.New(name, f, options)
}

// ended returns the spans that have ended, by name, and checks that all have.
func (o *operator) ended() map[string][]sdk.ReadOnlySpan {
	o.t.Helper()
	synctest.Wait()
	testkit.Equal(o.t, len(o.spans.Started()), len(o.spans.Ended()), "spans that have begun and ended")
	all := map[string][]sdk.ReadOnlySpan{}
	for _, s := range o.spans.Ended() {
		all[s.Name()] = append(all[s.Name()], s)
	}
	return all
}

func attributes(s sdk.ReadOnlySpan) map[string]attribute.Value {
	all := map[string]attribute.Value{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value
	}
	return all
}

func (o *operator) wantAttributes(s sdk.ReadOnlySpan, want map[string]any) {
	o.t.Helper()
	got := attributes(s)
	for k, v := range want {
		if is, ok := got[k]; !ok || is.AsInterface() != v {
			o.t.Errorf("%s: %s is %v, want %v", s.Name(), k, is.AsInterface(), v)
		}
	}
}

func configMap(trace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Annotations: map[string]string{annotation: trace}}}
}

// TestReconcile_HasASpanAndItsRequestsAreChildren: the span links to the trace of its object.
// Requests of informers have no span.
func TestReconcile_HasASpanAndItsRequestsAreChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t)
		maps, writes := client.For[*corev1.ConfigMap](o.client), client.For[*corev1.Secret](o.client)
		c := o.controller("copy", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			testkit.ErrorSatisfies(t, testkit.Err(maps.GetLive(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "missing"})), apierrors.IsNotFound)
			_, err := writes.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
			return controller.Result{}, err
		}, controller.Options{})
		c.Watch(source.Kind(cache.For[*corev1.ConfigMap](o.cache), handler.Self()))
		o.api.Put(sim.ConfigMaps, configMap(given))
		outer, end := o.provider.Tracer("main").Start(t.Context(), "main")
		stop := o.run(func(ctx context.Context) error {
			return c.Run(trace.ContextWithSpan(ctx, trace.SpanFromContext(outer)))
		})
		synctest.Wait()
		stop()
		end.End()
		all := o.ended()
		if len(all) != 4 || len(all["Reconcile copy"]) != 1 || len(all["get configmaps"]) != 1 || len(all["create secrets"]) != 1 {
			t.Fatalf("the spans are %v", all)
		}
		root := all["Reconcile copy"][0]
		if root.Parent().IsValid() || root.SpanKind() != trace.SpanKindConsumer || root.Status().Code != codes.Unset {
			t.Errorf("the span of the Reconcile is a %s with the parent %v and the status %v", root.SpanKind(), root.Parent(), root.Status())
		}
		if l := root.Links(); len(l) != 1 || l[0].SpanContext.TraceID().String() != given[3:35] || l[0].SpanContext.SpanID().String() != given[36:52] || !l[0].SpanContext.IsRemote() {
			t.Errorf("the links are %v, want one to %s", l, given)
		}
		o.wantAttributes(root, map[string]any{
			"setpoint.controller": "copy", "setpoint.key": "default/a", "k8s.namespace.name": "default", "setpoint.attempt": int64(1),
			"setpoint.outcome": "success", "setpoint.queue_wait": 0.0,
		})
		testkit.NotEqual(t, attributes(root)["setpoint.reconcile_id"].AsString(), "", "the span has no setpoint.reconcile_id")
		create, get := all["create secrets"][0], all["get configmaps"][0]
		for _, child := range []sdk.ReadOnlySpan{create, get} {
			if child.Parent().SpanID() != root.SpanContext().SpanID() || child.SpanKind() != trace.SpanKindClient {
				t.Errorf("%s is a %s with the parent %v", child.Name(), child.SpanKind(), child.Parent())
			}
		}
		o.wantAttributes(create, map[string]any{"k8s.verb": "create", "k8s.resource": "secrets", "k8s.namespace.name": "default", "http.response.status_code": int64(201)})
		o.wantAttributes(get, map[string]any{"k8s.object.name": "missing", "http.response.status_code": int64(404)})
		testkit.Equal(t, create.Status().Code, codes.Unset, create.Status())
		testkit.Equal(t, get.Status().Code, codes.Error, get.Status())
	})
}

// TestReconcile_SpanEndsInEveryCase: with an outcome, and with an error status if it is a failure.
func TestReconcile_SpanEndsInEveryCase(t *testing.T) {
	flaky := errors.New("flaky")
	for name, c := range map[string]struct {
		reconcile func(ctx context.Context) error
		options   controller.Options
		outcome   hook.Outcome
		status    string // or "" if it is no failure
		more      map[string]any
	}{
		"error":      {func(context.Context) error { return flaky }, controller.Options{}, hook.Failed, "flaky", nil},
		"gave up":    {func(context.Context) error { return flaky }, controller.Options{MaxAttempts: 1}, hook.Failed, "flaky", map[string]any{"setpoint.gave_up": true}},
		"terminal":   {func(context.Context) error { return controller.Terminal(flaky) }, controller.Options{}, hook.FailedTerminally, "flaky", map[string]any{"error.type": string(why.Error)}},
		"long":       {func(context.Context) error { return errors.New(strings.Repeat("x", 2000)) }, controller.Options{}, hook.Failed, strings.Repeat("x", 1024) + "…", nil},
		"panic":      {func(context.Context) error { panic("oh") }, controller.Options{}, hook.Panicked, "oh", map[string]any{"error.type": string(why.Panicked)}},
		"exited":     {func(context.Context) error { runtime.Goexit(); return nil }, controller.Options{}, hook.Panicked, "ended its goroutine", nil},
		"deadline":   {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, controller.Options{Deadline: time.Second}, hook.Failed, "deadline", map[string]any{"setpoint.timed_out": true, "error.type": string(why.TimedOut)}},
		"stopped":    {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, controller.Options{}, hook.Interrupted, "", nil},
		"lost Lease": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, controller.Options{}, hook.Interrupted, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOperator(t)
				first := true
				r := o.controller("fails", func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
					if !first {
						return controller.Result{}, nil
					}
					first = false
					return controller.Result{}, c.reconcile(ctx)
				}, c.options)
				r.Queue().Add(types.NamespacedName{Name: "a"})
				run := r.Run
				if name == "lost Lease" {
					o.run(r.Warm)
					run = func(term context.Context) error { return r.Lead(term, term) }
				}
				stop := o.run(run)
				if c.outcome != hook.Interrupted {
					time.Sleep(time.Minute)
				}
				synctest.Wait()
				stop()
				s := o.ended()["Reconcile fails"][0]
				want := map[string]any{"setpoint.outcome": string(c.outcome)}
				for k, v := range c.more {
					want[k] = v
				}
				o.wantAttributes(s, want)
				if got := s.Status(); (got.Code == codes.Error) != (c.status != "") || !strings.Contains(got.Description, c.status) || len(got.Description) > 1100 {
					t.Errorf("the status is %v, want %q", got, c.status)
				}
				if kind, has := attributes(s)["error.type"]; has != (c.status != "") || has && kind.AsString() == "" {
					t.Errorf("error.type is %q", kind.AsString())
				}
			})
		})
	}
}

// TestTraces_AreHandedAlong: a controller writes a Secret with its trace. The span of the Secret's
// controller links to it. Without a change, there is no write, and the annotation stays.
func TestTraces_AreHandedAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t)
		maps, secrets := cache.For[*corev1.ConfigMap](o.cache), cache.For[*corev1.Secret](o.cache)
		write := client.For[*corev1.Secret](o.client)
		waits := 0
		one := o.controller("one", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			m, err := maps.Get(ctx, key)
			if err != nil {
				return controller.Result{}, err
			}
			live, err := secrets.Get(ctx, key)
			absent := err != nil
			if absent {
				live = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			}
			_, _, err = client.CreateOrUpdate(ctx, write, live, func(s *corev1.Secret) error {
				s.Data, s.Annotations = map[string][]byte{"a": []byte(m.Data["a"])}, nil
				return nil
			}, client.TraceParent(tracing.TraceParent(ctx)))
			if absent { // it is due before the cache shows the write
				return controller.Result{RequeueAfter: time.Millisecond}, err
			}
			return controller.Result{}, err
		}, controller.Options{}, hook.On(func(a *hook.Awaited) {
			waits++
			if a.Expired || a.Doubts != nil {
				t.Errorf("the cache did not show a write with the annotation: %+v", *a)
			}
		}))
		one.Watch(source.Kind(maps, handler.Self()))
		one.Watch(source.Kind(secrets, handler.Self()))
		two := o.controller("two", func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		}, controller.Options{})
		two.Watch(source.Kind(secrets, handler.Self()))
		o.run(one.Run)
		o.run(two.Run)
		change := func(value, label string) {
			m := configMap("")
			m.Data, m.Labels = map[string]string{"a": value}, map[string]string{"x": label}
			o.api.Put(sim.ConfigMaps, m)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		o.api.Lag(10 * time.Millisecond)
		var versions []string
		for _, step := range [][2]string{{"1", "1"}, {"1", "2"}, {"2", "2"}} {
			change(step[0], step[1])
			versions = append(versions, o.api.Object(sim.Secrets, "default", "a").GetResourceVersion())
		}
		if versions[0] != versions[1] || versions[1] == versions[2] {
			t.Errorf("the Secret has the versions %v, want a new one only for the last change", versions)
		}
		trace := o.api.Object(sim.Secrets, "default", "a").GetAnnotations()[annotation]
		all := o.ended()
		testkit.NotEqual(t, waits, 0, "no Reconcile waited for a write")
		writer := slices.IndexFunc(all["Reconcile one"], func(s sdk.ReadOnlySpan) bool { return trace[36:52] == s.SpanContext().SpanID().String() })
		if writer < 0 {
			t.Fatalf("no Reconcile of one has the span of %s", trace)
		}
		last := all["Reconcile two"][len(all["Reconcile two"])-1]
		testkit.Equal(t, len(all["Reconcile two"]), 2, "two had Reconciles")
		testkit.Equal(t, writer, 0, "the Secret has the trace of Reconcile of one")
		if l := last.Links(); len(l) != 1 || l[0].SpanContext.SpanID() != all["Reconcile one"][writer].SpanContext().SpanID() || l[0].SpanContext.TraceID().String() != trace[3:35] {
			t.Errorf("the span of two has the links %v, want one to %s", l, trace)
		}
	})
}

// TestReconcile_AnotherObserverDerivesASpan: the right one ends.
func TestReconcile_AnotherObserverDerivesASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t)
		var other trace.Span
		c := o.controller("a", func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		}, controller.Options{},
			hook.On(func(e *hook.Reconciling) { e.Context, other = o.provider.Tracer("other").Start(e.Context, "other") }))
		c.Queue().Add(types.NamespacedName{Name: "a"})
		stop := o.run(c.Run)
		synctest.Wait()
		stop()
		if ended := o.spans.Ended(); len(ended) != 1 || ended[0].Name() != "Reconcile a" {
			t.Errorf("%d spans have ended, want that of the Reconcile", len(ended))
		}
		other.End()
	})
}

// TestReconciles_Twice: two hooks of this package end both of their spans, with texts that an
// exporter can send.
func TestReconciles_Twice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t)
		maps := cache.For[*corev1.ConfigMap](o.cache)
		c := o.controller("one", func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, controller.Terminal(errors.New("\xff" + strings.Repeat("é", 1000)))
		}, controller.Options{}, tracing.Reconciles(o.provider))
		c.Watch(source.Kind(maps, handler.Self()))
		o.run(c.Run)
		o.api.Put(sim.ConfigMaps, configMap(""))
		synctest.Wait()
		all := o.ended()["Reconcile one"]
		if len(all) != 2 {
			t.Fatalf("%d spans have ended, want 2", len(all))
		}
		if text := all[0].Status().Description; !utf8.ValidString(text) || !strings.HasPrefix(text, "\uFFFDé") || !strings.HasSuffix(text, "…") {
			t.Errorf("the status is %q", text)
		}
	})
}

func TestTraceParent(t *testing.T) {
	testkit.Equal(t, tracing.TraceParent(t.Context()), "", "without a span it")
	for flags, sampler := range map[string]sdk.Sampler{"01": sdk.AlwaysSample(), "00": sdk.NeverSample()} {
		ctx, span := sdk.NewTracerProvider(sdk.WithSampler(sampler)).Tracer("").Start(t.Context(), "a")
		of := span.SpanContext()
		testkit.Equal(t, tracing.TraceParent(ctx), "00-"+of.TraceID().String()+"-"+of.SpanID().String()+"-"+flags)
		span.End()
	}
}
