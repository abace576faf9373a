// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestC6_CreateOrUpdateFromTheCache: each Reconcile reads the Secret from the cache, and writes it.
// It sees what the one before wrote, although watches lag. An unchanged Secret is not written.
func TestC6_CreateOrUpdateFromTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var results []client.Result
		step := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			found, err := r.secrets.Get(ctx, key)
			if apierrors.IsNotFound(err) {
				found, err = &corev1.Secret{ObjectMeta: named(key.Name)}, nil
			}
			if err != nil {
				return controller.Result{}, err
			}
			testkit.Len(t, found.Data, min(len(results), 3), len(results))
			_, result, err := client.CreateOrUpdate(ctx, r.secret(), found, func(s *corev1.Secret) error {
				if n := len(s.Data); n < 3 {
					if s.Data == nil {
						s.Data = map[string][]byte{}
					}
					s.Data[string(rune('a'+n))] = []byte("x")
				}
				return nil
			})
			results = append(results, result)
			return controller.Result{RequeueAfter: time.Millisecond}, err
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, step, step, step, step)
		r.start()
		at := r.after(time.Minute)
		testkit.SlicesEqual(t, results, []client.Result{client.Created, client.Updated, client.Updated, client.Unchanged})
		r.want(at[:4], 0, lag, 2*lag, 3*lag)
		testkit.Equal(t, r.api.Count("create", sim.Secrets)+r.api.Count("update", sim.Secrets), 3, "writes")
	})
}
