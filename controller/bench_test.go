// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
)

// BenchmarkNoop measures a Reconcile that only adds the next key, from queue to queue. Package
// bench compares.
func BenchmarkNoop(b *testing.B) {
	for name, o := range map[string]controller.Options{
		"plain": {}, "deadline": {Deadline: time.Hour}, "interrupt": {MaxInterrupts: 1},
	} {
		b.Run(name, func(b *testing.B) {
			o.Logger = silent
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
			}), o)
			c.Queue().Add(0)
			b.ReportAllocs()
			b.ResetTimer()
			if err := c.Run(ctx); err != nil {
				b.Fatal(err)
			}
		})
	}
}
