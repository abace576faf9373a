// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"context"
	"log/slog"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/tracing"
)

// BenchmarkNoop measures a Reconcile that only adds the next key, from queue to queue.
func BenchmarkNoop(b *testing.B) {
	for name, h := range map[string]*hook.Hook{
		"no spans":       nil,
		"never sampled":  tracing.Reconciles(sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))),
		"always sampled": tracing.Reconciles(sdk.NewTracerProvider()),
	} {
		b.Run(name, func(b *testing.B) {
			var c *controller.Controller[int]
			ctx, cancel := context.WithCancel(b.Context())
			left := b.N
			c = controller.New("bench", controller.Func[int](func(_ context.Context, key int) (controller.Result, error) {
				if left--; left <= 0 {
					cancel()
				} else {
					c.Queue().Add((key + 1) & 1023)
				}
				return controller.Result{}, nil
			}), controller.Options{Logger: slog.New(slog.DiscardHandler), Hook: h})
			c.Queue().Add(0)
			b.ReportAllocs()
			b.ResetTimer()
			testkit.NoError(b, c.Run(ctx))
		})
	}
}
