// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
)

// frequent calls the hooks of each key, event and request.
func frequent(tb testing.TB) map[string]func() {
	tb.Helper()
	m := newMetrics(tb, prometheus.NewRegistry())
	feed(m)
	return map[string]func(){
		"Queue.Added":   func() { m.Queue.Added(hook.QueueAdded{Queue: "website", Keys: 1}) },
		"Queue.Taken":   func() { m.Queue.Taken(hook.QueueTaken{Queue: "website", Waited: time.Millisecond}) },
		"Queue.Settled": func() { m.Queue.Settled(hook.QueueSettled{Queue: "website", Held: time.Millisecond}) },
		"Controller.Reconciled": func() {
			m.Controller.Reconciled(context.Background(), hook.Reconcile{Controller: "website", Took: time.Millisecond, Outcome: hook.Succeeded})
		},
		"Source.Dropped": func() {
			m.Source.Dropped(hook.SourceDropped{Controller: "website", Source: "Kind(Website)", Reason: "GenerationChanged"})
		},
		"Client.Answered": func() {
			m.Client.Answered(hook.APIAnswer{Method: "PUT", Host: "api:6443", Status: 409, Took: time.Millisecond})
		},
		"Client.Requested": func() {
			m.Client.Requested(hook.APIRequest{Controller: "website", Verb: "update", Group: "apps", Resource: "deployments", Subresource: "scale", Status: 200})
		},
	}
}

// TestFrequentHooksDoNotAllocate: metrics must not make a Reconcile slower.
func TestFrequentHooksDoNotAllocate(t *testing.T) {
	for name, f := range frequent(t) {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkHooks(b *testing.B) {
	for name, f := range frequent(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}

// all returns metrics and every other hook of a Reconcile, a queue and a source, without an effect.
func all(m hook.Hooks) hook.Hooks {
	return m.With(hook.Hooks{
		Controller: &hook.Controller{
			Reconciling: func(context.Context, string) context.Context { return nil }, Reconciled: func(context.Context, hook.Reconcile) {},
			Awaited: func(hook.Awaited) {}, GaveUp: func(hook.GaveUp) {}, Slow: func(hook.Slow) {},
		},
		Queue:  &hook.Queue{Added: func(hook.QueueAdded) {}, Taken: func(hook.QueueTaken) {}, Settled: func(hook.QueueSettled) {}},
		Source: &hook.Source{Dropped: func(hook.SourceDropped) {}},
	})
}

// BenchmarkReconcile measures a Reconcile that only adds the next key, from queue to queue, with
// and without metrics and hooks. "context" has a hook that returns a context of its own.
func BenchmarkReconcile(b *testing.B) {
	m := newMetrics(b, prometheus.NewRegistry())
	type span struct{}
	traced := hook.Hooks{Controller: &hook.Controller{
		Reconciling: func(ctx context.Context, _ string) context.Context { return context.WithValue(ctx, span{}, nil) },
	}}
	for _, run := range []struct {
		name string
		o    controller.Options
	}{
		{"off", controller.Options{}}, {"metrics", controller.Options{Hooks: m}}, {"all", controller.Options{Hooks: all(m)}},
		{"context", controller.Options{Hooks: all(m).With(traced)}},
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
	if err := c.Run(ctx); err != nil {
		tb.Fatal(err)
	}
}

// TestHooksOfAReconcileDoNotAllocate: with metrics and all hooks, a Reconcile allocates at most
// once more than without.
func TestHooksOfAReconcileDoNotAllocate(t *testing.T) {
	m := newMetrics(t, prometheus.NewRegistry())
	const runs = 2000
	allocs := func(o controller.Options) float64 {
		return testing.AllocsPerRun(3, func() { reconcile(t, o, runs) }) / runs
	}
	if off, on := allocs(controller.Options{}), allocs(controller.Options{Hooks: all(m)}); on > off+1 {
		t.Errorf("a Reconcile allocates %.2f times with hooks, %.2f times without", on, off)
	}
}
