// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
)

// batches runs as many Jobs as a ConfigMap asks for, one after another. It counts them in the
// cache.
type batches struct {
	wanted *cache.Handle[*corev1.ConfigMap]
	jobs   *cache.Handle[*batchv1.Job]
	client *client.Client
}

func (r *batches) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	batch, err := r.wanted.Get(ctx, key)
	switch {
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, err
	}
	if err := controller.Stale(ctx); err != nil {
		return controller.Result{}, err // one Job too many would be worse than a late one
	}
	jobs := 0
	for _, err := range r.jobs.Owned(ctx, batch.UID, cache.ListOptions{}) {
		if err != nil {
			return controller.Result{}, err
		}
		jobs++ // also the one that the Reconcile before this has created
	}
	if fmt.Sprint(jobs) == batch.Data["jobs"] {
		return controller.Result{}, nil
	}
	controller.Logger(ctx).Info("creating a job", "number", jobs)
	_, err = client.For[*batchv1.Job](r.client).Create(ctx, r.next(batch, jobs))
	return controller.Result{}, err
}

func (r *batches) next(batch *corev1.ConfigMap, n int) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: batch.Namespace, Name: fmt.Sprintf("%s-%d", batch.Name, n)}}
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(batch, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	return job
}

// The Reconcile sees all Jobs that it has created.
func ExampleStale() {
	var r controller.Reconciler[types.NamespacedName] = &batches{}
	fmt.Printf("%T\n", r)
	// Output: *controller_test.batches
}
