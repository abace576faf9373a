// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// frequent returns metrics, and the events of each key and request.
func frequent(tb testing.TB) (*hook.Hook, []hook.Event) {
	tb.Helper()
	m := newMetrics(tb, prometheus.NewRegistry())
	feed(m)
	return m, []hook.Event{
		&hook.QueueAdded{Queue: "website", Keys: 1},
		&hook.QueueTaken{Queue: "website", Waited: time.Millisecond},
		&hook.QueueSettled{Queue: "website", Held: time.Millisecond},
		&hook.Reconciled{Controller: "website", Took: time.Millisecond, Outcome: hook.Succeeded},
		&hook.SourceDropped{Controller: "website", Source: "Kind(Website)", Reason: "GenerationChanged"},
		&hook.APIAnswer{Method: "PUT", Host: "api:6443", Status: 409, Took: time.Millisecond},
		&hook.APIRequest{Controller: "website", Verb: "update", Group: "apps", Resource: "deployments", Subresource: "scale", Status: 200},
	}
}

// TestFrequentEventsDoNotAllocate: metrics must not make a Reconcile slower.
func TestFrequentEventsDoNotAllocate(t *testing.T) {
	m, events := frequent(t)
	for _, e := range events {
		testkit.Equal(t, testing.AllocsPerRun(100, func() { m.Send(e) }), 0, fmt.Sprintf("%T allocates", e))
	}
}

func BenchmarkEvents(b *testing.B) {
	m, events := frequent(b)
	for _, e := range events {
		b.Run(fmt.Sprintf("%T", e), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Send(e)
			}
		})
	}
}

// BenchmarkScrape measures a scrape of 50 controllers with 100 failing keys each.
func BenchmarkScrape(b *testing.B) {
	r := prometheus.NewRegistry()
	m := newMetrics(b, r)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 50)
	for i := range cap(ended) {
		c := controller.New(fmt.Sprint("bench-", i), controller.Func[int](func(context.Context, int) (controller.Result, error) {
			return controller.Result{}, controller.RetryAfter(errors.New("down"), time.Hour)
		}), controller.Options{Hook: m, Logger: slog.New(slog.DiscardHandler)})
		for key := range 100 {
			c.Queue().Add(key)
		}
		go func() { ended <- c.Run(ctx) }()
	}
	failing := func() (n float64) {
		all, err := r.Gather()
		testkit.NoError(b, err)
		for _, f := range all {
			for _, s := range f.GetMetric() {
				if f.GetName() == "setpoint_failing_keys" {
					n += s.GetGauge().GetValue()
				}
			}
		}
		return n
	}
	for range time.Tick(10 * time.Millisecond) {
		if failing() == 5000 {
			break
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		failing()
	}
	stop()
	for range cap(ended) {
		testkit.Equal(b, <-ended, nil)
	}
}

// all adds an observer of all events, without an effect.
func all(m *hook.Hook) *hook.Hook { return hook.Join(m, hook.New(func(hook.Event) {})) }

// BenchmarkReconcile measures a Reconcile that only adds the next key, from queue to queue, with
// and without metrics and other observers. "context" has one that replaces the context.
func BenchmarkReconcile(b *testing.B) {
	m := newMetrics(b, prometheus.NewRegistry())
	type span struct{}
	traced := hook.On(func(e *hook.Reconciling) { e.Context = context.WithValue(e.Context, span{}, nil) })
	for _, run := range []struct {
		name string
		o    controller.Options
	}{
		{"off", controller.Options{}}, {"metrics", controller.Options{Hook: m}}, {"all", controller.Options{Hook: all(m)}},
		{"context", controller.Options{Hook: hook.Join(all(m), traced)}},
	} {
		b.Run(run.name, func(b *testing.B) {
			b.ReportAllocs()
			reconcile(b, run.o, b.N)
		})
	}
}

// reconcile runs n Reconciles. Each adds the next key.
func reconcile(tb testing.TB, o controller.Options, n int) {
	tb.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	var c *controller.Controller[int]
	ctx, cancel := context.WithCancel(context.Background())
	c = controller.New("bench", controller.Func[int](func(_ context.Context, key int) (controller.Result, error) {
		if n--; n <= 0 {
			cancel()
		} else {
			c.Queue().Add((key + 1) & 1023)
		}
		return controller.Result{}, nil
	}), o)
	c.Queue().Add(0)
	if b, ok := tb.(*testing.B); ok {
		b.ResetTimer()
	}
	testkit.NoError(tb, c.Run(ctx))
}

// TestHooksOfAReconcileDoNotAllocate: with metrics and all hooks, a Reconcile allocates at most
// once more than without.
func TestHooksOfAReconcileDoNotAllocate(t *testing.T) {
	m := newMetrics(t, prometheus.NewRegistry())
	const runs = 2000
	allocs := func(o controller.Options) float64 {
		return testing.AllocsPerRun(3, func() { reconcile(t, o, runs) }) / runs
	}
	if off, on := allocs(controller.Options{}), allocs(controller.Options{Hook: all(m)}); on > off+1 {
		t.Errorf("a Reconcile allocates %.2f times with hooks, %.2f times without", on, off)
	}
}
