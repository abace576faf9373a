// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/finalizer"
)

// The traffic is drained before the bucket is deleted.
func ExampleChain() {
	newChain := func(c *client.Client, drain, deleteBucket func(context.Context, *corev1.ConfigMap) error) (*finalizer.Chain[*corev1.ConfigMap], error) {
		return finalizer.NewChain(client.For[*corev1.ConfigMap](c),
			finalizer.Step[*corev1.ConfigMap]{Finalizer: "example.com/traffic", Run: drain},
			finalizer.Step[*corev1.ConfigMap]{Finalizer: "example.com/bucket", Run: deleteBucket, Timeout: time.Minute},
		)
	}
	_ = newChain // in main
}

// Ensure comes before everything that the steps clean up.
func ExampleChain_Finalize() {
	reconcile := func(sites *cache.Handle[*corev1.ConfigMap], chain *finalizer.Chain[*corev1.ConfigMap]) controller.Func[types.NamespacedName] {
		return func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			site, err := sites.Get(ctx, key)
			if apierrors.IsNotFound(err) {
				return controller.Result{}, nil
			}
			if err != nil {
				return controller.Result{}, err
			}
			if site.DeletionTimestamp != nil {
				err := chain.Finalize(ctx, site)
				if finalizer.IsWaiting(err) { // finalizer.Waiting("3 objects are left")
					controller.Logger(ctx).Info("the deletion waits", "for", err)
					return controller.Result{RequeueAfter: 10 * time.Second}, nil
				}
				return controller.Result{}, err
			}
			_, err = chain.Ensure(ctx, site)
			return controller.Result{}, err // then create what the steps clean up
		}
	}
	_ = reconcile // for controller.New
}
