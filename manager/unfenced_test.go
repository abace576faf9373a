// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/term"
)

// TestL2_WritesWithoutATermAreInTheLog: once for each resource, and only with leader election.
func TestL2_WritesWithoutATermAreInTheLog(t *testing.T) {
	for name, test := range map[string]struct {
		options func(*manager.Options)
		want    int
	}{"elected": {elected, 1}, "alone": {nil, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				put(api, "a")
				var out testkit.Buffer
				m := newManager(api, func(o *manager.Options) {
					o.Logger = slog.New(slog.NewTextHandler(&out, nil))
					if test.options != nil {
						test.options(o)
					}
				})
				configMaps(m, "website", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
					maps := client.For[*corev1.ConfigMap](m.Client())
					for _, with := range []context.Context{ctx, term.Without(t.Context()), t.Context(), t.Context()} {
						testkit.NotEqual(t, maps.Delete(with, types.NamespacedName{Namespace: key.Namespace, Name: "missing"}), nil)
					}
					return controller.Result{}, nil
				})
				stop, result := start(t, m)
				testkit.Pass(time.Minute)
				stop()
				ok(t, result())
				testkit.Count(t, out.String(), "a write without a term of leadership", test.want)
			})
		})
	}
}
