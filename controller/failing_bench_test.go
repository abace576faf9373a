// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/why"
)

// BenchmarkFailing measures what a scrape and a list of failing keys cost for a million of them.
func BenchmarkFailing(b *testing.B) {
	const keys = 1_000_000
	started := make(chan func() hook.ControllerStats, 1)
	c := controller.New("bench", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, controller.RetryAfter(errFlaky, 24*time.Hour)
	}), controller.Options{Logger: silent, Hook: hook.On(func(e *hook.ControllerStarted) { started <- e.Stats })})
	for i := range keys {
		c.Queue().Add(types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("website-%d", i)})
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stats := <-started
	for range time.Tick(100 * time.Millisecond) {
		if stats().Failing[string(why.Error)] == keys {
			break
		}
	}
	b.Run("scrape", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			stats()
		}
	})
	b.Run("list", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Failing()
		}
	})
	b.Run("report", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Report()
		}
	})
	b.Run("keys", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range c.Keys() {
			}
		}
	})
	stop()
	testkit.NoError(b, <-ended)
}
