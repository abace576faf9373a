// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/controller"
	v1 "github.com/setpoint-dev/setpoint/examples/cronjob/api/v1"
)

// children are the Jobs of a CronJob by their state, oldest first.
type children struct {
	active, successful, failed []*batchv1.Job
}

func split(cj *v1.CronJob, owned []*batchv1.Job) *children {
	slices.SortFunc(owned, func(a, b *batchv1.Job) int {
		return cmp.Or(started(a).Compare(started(b)), cmp.Compare(a.Name, b.Name))
	})
	var c children
	for _, job := range owned {
		switch {
		case !metav1.IsControlledBy(job, cj):
		case hasCondition(job, batchv1.JobComplete):
			c.successful = append(c.successful, job)
		case hasCondition(job, batchv1.JobFailed):
			c.failed = append(c.failed, job)
		default:
			c.active = append(c.active, job)
		}
	}
	return &c
}

// started returns the zero time for a Job that has not started.
func started(job *batchv1.Job) time.Time {
	if job.Status.StartTime == nil {
		return time.Time{}
	}
	return job.Status.StartTime.Time
}

func hasCondition(job *batchv1.Job, t batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == t && c.Status == corev1.ConditionTrue
	})
}

// beyondLimits returns the finished Jobs that the history has no room for.
func (c *children) beyondLimits(cj *v1.CronJob) []*batchv1.Job {
	oldest := func(jobs []*batchv1.Job, limit *int32) []*batchv1.Job {
		if limit == nil {
			return nil
		}
		return jobs[:max(0, len(jobs)-int(*limit))]
	}
	return slices.Concat(oldest(c.successful, cj.Spec.SuccessfulJobsHistoryLimit), oldest(c.failed, cj.Spec.FailedJobsHistoryLimit))
}

// lastRun returns the time of the newest run that was started, or nil. The status remembers a run
// whose Job is gone.
func lastRun(ctx context.Context, cj *v1.CronJob, owned []*batchv1.Job) *metav1.Time {
	last := cj.Status.LastScheduleTime
	for _, job := range owned {
		at, err := time.Parse(time.RFC3339, job.Annotations[v1.ScheduledAtAnnotation])
		switch {
		case job.Annotations[v1.ScheduledAtAnnotation] == "": // not a Job of this controller
		case err != nil:
			controller.Logger(ctx).Warn("a job has an invalid annotation", "job", job.Name, "err", err)
		case last == nil || last.Time.Before(at):
			last = &metav1.Time{Time: at}
		}
	}
	return last
}

// newJob returns the Job of one run. Its name depends only on the run, so a run cannot be started
// twice.
func newJob(cj *v1.CronJob, run time.Time) *batchv1.Job {
	template := cj.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{Spec: template.Spec}
	job.Namespace, job.Name = cj.Namespace, fmt.Sprintf("%s-%d", cj.Name, run.Unix())
	job.Labels, job.Annotations = template.Labels, template.Annotations
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1.ScheduledAtAnnotation, run.Format(time.RFC3339))
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cj, v1.SchemeGroupVersion.WithKind("CronJob"))}
	return job
}
