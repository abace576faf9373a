// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// TestLog_AControllerWithoutSources is logged at its start.
func TestLog_AControllerWithoutSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const says = `level=WARN msg="controller watches nothing`
		for watching := range 2 {
			var lines testkit.Buffer
			c := newController(noting(&calls{}), controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
			for range watching {
				c.Watch(newSource("keys"))
			}
			stop := start(t, c)
			synctest.Wait()
			ok(t, stop())
			testkit.Count(t, lines.String(), says, 1-watching, fmt.Sprintf("%d sources", watching))
		}
	})
}

// TestLog_AHandleOfACacheThatDoesNotRun is logged once for each handle, but not if its cache is
// only late.
func TestLog_AHandleOfACacheThatDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		cl, err := client.New(api.Config(), client.Options{})
		ok(t, err)
		late, never := cache.New(cl, cache.Options{}), cache.New(cl, cache.Options{})
		reconcile := controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		})
		c := controller.New("test", reconcile, controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		c.Watch(source.Kind(cache.For[*corev1.ConfigMap](late), handler.Self()))
		c.Reads(cache.For[*corev1.Secret](never))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(9 * time.Second)
		go func() { ended <- late.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		cancel()
		ok(t, <-ended)
		ok(t, <-ended)
		const says = "workers wait for a handle whose cache does not run; run that cache"
		testkit.Count(t, lines.String(), says, 1)
		testkit.Contains(t, lines.String(), says+`, or take the handle from the manager's Cache()" controller=test source=Secret.v1`)
		testkit.Contains(t, lines.String(), `msg=watching controller=test sources=Kind(ConfigMap.v1) reads=Secret.v1`, "the log")
	})
}
