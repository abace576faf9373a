// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestC6_AWriteAfterTheReconcileIsRefused: this covers goroutines that use the context of a
// returned Reconcile, with or without earlier requests. The log has it once. Reads and declared
// background work pass.
func TestC6_AWriteAfterTheReconcileIsRefused(t *testing.T) {
	for name, before := range map[string]int{"first request": 0, "after a request of the Reconcile": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines testkit.Buffer
				late := make(chan error, 2)
				leave := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
					for range before {
						_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named("during")})
						ok(t, err)
					}
					time.AfterFunc(10*time.Second, func() {
						for range 2 {
							_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named("late")})
							late <- err
						}
						_, err := r.secret().Create(ledger.Without(ctx), &corev1.Secret{ObjectMeta: named("background")})
						ok(t, err)
						_, err = r.secret().GetLive(ctx, types.NamespacedName{Namespace: "default", Name: "background"})
						ok(t, err)
					})
					return controller.Result{}, nil
				}
				o := controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))}
				r := newRig(t, o, workqueue.Options[types.NamespacedName]{}, nil, leave)
				r.start()
				r.after(time.Minute)
				var refused *ledger.LateWriteError
				for range 2 {
					if err := <-late; !errors.As(err, &refused) || refused.Key != (types.NamespacedName{Namespace: "default", Name: "a"}) {
						t.Errorf("a late write: %v", err)
					}
				}
				if refused == nil {
					return
				}
				const says = `client: controller "test": create secrets in default was refused because the Reconcile of default/a has returned; finish all writes`
				if text := refused.Error(); !strings.HasPrefix(text, says) {
					t.Errorf("the error says %q", text)
				}
				testkit.Count(t, lines.String(), "level=ERROR", 1)
				testkit.Contains(t, lines.String(), "key=default/a reconcileID="+refused.ReconcileID)
				testkit.Equal(t, r.api.Object(sim.Secrets, "default", "late"), nil, "the late write was made")
			})
		})
	}
}
