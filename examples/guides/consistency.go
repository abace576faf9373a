// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
)

// batches creates as many Jobs as a ConfigMap asks for. It counts them in the cache.
type batches struct {
	wanted *cache.Handle[*corev1.ConfigMap]
	jobs   *cache.Handle[*batchv1.Job]
	client *client.Client
	next   func(batch *corev1.ConfigMap, number int) *batchv1.Job
}

func (r *batches) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	batch, err := r.wanted.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	if err := controller.Stale(ctx); err != nil {
		return controller.Result{}, err // one Job too many is worse than a late Job
	}
	jobs := 0
	for _, err := range r.jobs.Owned(ctx, batch.UID, cache.ListOptions{}) {
		if err != nil {
			return controller.Result{}, err
		}
		jobs++ // includes the Job that the previous Reconcile created
	}
	if strconv.Itoa(jobs) == batch.Data["jobs"] {
		return controller.Result{}, nil
	}
	controller.Logger(ctx).Info("creating a job", "number", jobs)
	_, err = client.For[*batchv1.Job](r.client).Create(ctx, r.next(batch, jobs))
	return controller.Result{}, err
}
