// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/setpoint-dev/setpoint/examples/cronjob/api/v1"
)

// Reasons of conditions.
const (
	reasonActive          = "JobsActive"
	reasonNoneActive      = "NoJobsActive"
	reasonCompleted       = "AllJobsCompleted"
	reasonFailed          = "JobsFailed"
	reasonSuspended       = "Suspended"
	reasonInvalidSchedule = "InvalidSchedule"
	reasonTooManyMissed   = "TooManyMissedRuns"
	reasonMissed          = "MissedSchedule"
	reasonNotCreated      = "JobCreationFailed"
	reasonAsExpected      = "AsExpected"
)

// A problem is an error with a reason for the condition Degraded.
type problem struct {
	reason string
	err    error
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

// describe sets the status, except the time of the last run.
func describe(cj *v1.CronJob, jobs *children, p plan, failure error) {
	cj.Status.Active = nil
	for _, job := range jobs.active {
		cj.Status.Active = append(cj.Status.Active, reference(job))
	}
	set := func(name string, is bool, reason, message string, args ...any) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&cj.Status.Conditions, metav1.Condition{
			Type: name, Status: status, Reason: reason, Message: fmt.Sprintf(message, args...), ObservedGeneration: cj.Generation,
		})
	}
	active, failed := len(jobs.active), len(jobs.failed)
	switch {
	case suspended(cj):
		set(v1.ConditionAvailable, false, reasonSuspended, "no run starts")
	case failed > 0:
		set(v1.ConditionAvailable, false, reasonFailed, "failed jobs: %d", failed)
	case active > 0:
		set(v1.ConditionAvailable, true, reasonActive, "active jobs: %d", active)
	default:
		set(v1.ConditionAvailable, true, reasonCompleted, "all jobs have completed")
	}
	if active > 0 {
		set(v1.ConditionProgressing, true, reasonActive, "active jobs: %d", active)
	} else {
		set(v1.ConditionProgressing, false, reasonNoneActive, "no job is active")
	}
	var cause *problem
	switch {
	case errors.As(failure, &cause):
		set(v1.ConditionDegraded, true, cause.reason, "%v", failure)
	case !p.expired.IsZero() && p.run.IsZero():
		set(v1.ConditionDegraded, true, reasonMissed, "the run of %s did not start within %d s", p.expired.Format(time.RFC3339), *cj.Spec.StartingDeadlineSeconds)
	case failed > 0:
		set(v1.ConditionDegraded, true, reasonFailed, "failed jobs: %d", failed)
	default:
		set(v1.ConditionDegraded, false, reasonAsExpected, "every run was started as planned")
	}
}

func reference(job *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job",
		Namespace: job.Namespace, Name: job.Name, UID: job.UID,
	}
}
