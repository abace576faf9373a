// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	v1 "github.com/setpoint-dev/setpoint/examples/cronjob/api/v1"
)

// The permissions that the controller needs. Some API servers require the one on finalizers to set
// a blocking owner reference.
// +kubebuilder:rbac:groups=batch.tutorial.kubebuilder.io,resources=cronjobs,verbs=list;watch
// +kubebuilder:rbac:groups=batch.tutorial.kubebuilder.io,resources=cronjobs/status,verbs=update
// +kubebuilder:rbac:groups=batch.tutorial.kubebuilder.io,resources=cronjobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=cronjob-system,resources=leases,resourceNames=cronjob-controller,verbs=get;update;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=cronjob-system,resources=leases,verbs=create

type reconciler struct {
	cronJobs *cache.Handle[*v1.CronJob]
	jobs     *cache.Handle[*batchv1.Job]
	client   *client.Client
	now      func() time.Time // time.Now, except in tests
}

// Reconcile sorts the Jobs of a CronJob, deletes the old ones, starts the run that is due, and
// reports. The result makes the key due at the next run.
func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	cj, err := r.cronJobs.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil // the garbage collector deletes the Jobs
	}
	if err != nil {
		return controller.Result{}, err
	}
	if err := controller.Stale(ctx); err != nil {
		return controller.Result{}, err // a Job that is not seen could be started again
	}
	owned, err := client.Collect(r.jobs.Owned(ctx, cj.UID, cache.ListOptions{}))
	if err != nil {
		return controller.Result{}, err
	}
	before := cj.Status.DeepCopy()
	jobs := split(cj, owned)
	left := r.cleanUp(ctx, cj, jobs)
	cj.Status.LastScheduleTime = lastRun(ctx, cj, owned)

	var p plan
	var failure error
	if !suspended(cj) {
		p, failure = decide(cj, jobs, r.now())
	}
	if !p.run.IsZero() {
		failure = r.start(ctx, cj, jobs, p)
	}
	describe(cj, jobs, p, failure)
	if !equality.Semantic.DeepEqual(before, &cj.Status) {
		_, err = client.For[*v1.CronJob](r.client).UpdateStatus(ctx, cj)
	}
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return controller.Result{}, err
	case failure != nil || left != nil:
		return controller.Result{}, errors.Join(failure, left)
	}
	return controller.Result{RequeueAfter: p.wait}, nil
}

// cleanUp deletes the oldest finished Jobs beyond the limits. A run does not wait for it: after an
// error, the next Reconcile tries again.
func (r *reconciler) cleanUp(ctx context.Context, cj *v1.CronJob, jobs *children) error {
	deleted, err := client.For[*batchv1.Job](r.client).Prune(ctx, cj, jobs.beyondLimits(cj), none)
	for _, job := range deleted {
		controller.Logger(ctx).Info("deleted an old job", "job", job.Name)
	}
	if err != nil {
		return fmt.Errorf("deleting old jobs: %w", err)
	}
	return nil
}

// start creates the Job of a planned run, and deletes the active ones before if the plan says so.
// It updates the children and the time of the last run.
func (r *reconciler) start(ctx context.Context, cj *v1.CronJob, jobs *children, p plan) error {
	h := client.For[*batchv1.Job](r.client)
	if p.replace {
		if _, err := h.Prune(ctx, cj, jobs.active, none); err != nil {
			return &problem{reasonNotCreated, fmt.Errorf("deleting the active jobs: %w", err)}
		}
		jobs.active = nil
	}
	job, err := h.Create(ctx, newJob(cj, p.run))
	if err != nil {
		return &problem{reasonNotCreated, fmt.Errorf("creating the job of %s: %w", p.run.Format(time.RFC3339), err)}
	}
	controller.Logger(ctx).Info("created a job", "job", job.Name)
	jobs.active = append(jobs.active, job)
	cj.Status.LastScheduleTime = &metav1.Time{Time: p.run}
	return nil
}

func none(*batchv1.Job) bool { return false }
