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
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// frequent calls the hooks of each key, event and request.
func frequent(tb testing.TB) map[string]func() {
	tb.Helper()
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Options{})
	if err != nil {
		tb.Fatal(err)
	}
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

// BenchmarkReconcile measures a Reconcile that only adds the next key, from queue to queue, with
// and without metrics.
func BenchmarkReconcile(b *testing.B) {
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for name, o := range map[string]controller.Options{
		"alone": {}, "observed": {Hooks: m},
	} {
		b.Run(name, func(b *testing.B) {
			o.Logger = slog.New(slog.DiscardHandler)
			var c *controller.Controller[int]
			ctx, cancel := context.WithCancel(b.Context())
			left := b.N
			c = controller.NewWithQueue("bench", controller.Func[int](func(_ context.Context, key int) (controller.Result, error) {
				if left--; left <= 0 {
					cancel()
				} else {
					c.Queue().Add((key + 1) & 1023)
				}
				return controller.Result{}, nil
			}), o, workqueue.Options[int]{})
			c.Queue().Add(0)
			b.ReportAllocs()
			b.ResetTimer()
			if err := c.Run(ctx); err != nil {
				b.Fatal(err)
			}
		})
	}
}
