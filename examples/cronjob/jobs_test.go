// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/setpoint-dev/setpoint/examples/cronjob/api/v1"
)

// job returns a Job of a CronJob. Without a state it is active, without a start it has not started.
func job(cj *v1.CronJob, name string, start time.Time, state batchv1.JobConditionType) *batchv1.Job {
	j := newJob(cj, at(10, 0))
	j.Name = name
	if !start.IsZero() {
		j.Status.StartTime = &metav1.Time{Time: start}
	}
	if state != "" {
		j.Status.Conditions = []batchv1.JobCondition{{Type: state, Status: corev1.ConditionTrue}}
	}
	return j
}

func names(jobs []*batchv1.Job) (names []string) {
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	return names
}

func TestSplit_SortsByStateAndStart(t *testing.T) {
	cj, other := hourly(), hourly()
	other.UID = "uid-of-another"
	undecided := job(cj, "undecided", at(10, 3), batchv1.JobComplete)
	undecided.Status.Conditions[0].Status = corev1.ConditionUnknown
	c := split(cj, []*batchv1.Job{
		job(cj, "young", at(10, 2), batchv1.JobComplete),
		job(cj, "old", at(10, 1), batchv1.JobComplete),
		job(cj, "unknown-start", time.Time{}, batchv1.JobComplete),
		job(cj, "failed", at(10, 0), batchv1.JobFailed),
		job(cj, "b", at(10, 4), ""),
		job(cj, "a", at(10, 4), ""),
		job(cj, "ending", at(10, 5), batchv1.JobSuccessCriteriaMet),
		undecided,
		job(other, "of-another", at(10, 0), batchv1.JobFailed),
	})
	for what, got := range map[string][2][]string{
		"active":     {names(c.active), {"undecided", "a", "b", "ending"}},
		"successful": {names(c.successful), {"unknown-start", "old", "young"}},
		"failed":     {names(c.failed), {"failed"}},
	} {
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s: %v, want %v", what, got[0], got[1])
		}
	}
}

func TestBeyondLimits_AreTheOldestOfEachState(t *testing.T) {
	cj := hourly()
	c := &children{}
	for i := range 4 {
		c.successful = append(c.successful, job(cj, fmt.Sprint("ok", i), at(10, i), batchv1.JobComplete))
		c.failed = append(c.failed, job(cj, fmt.Sprint("bad", i), at(10, i), batchv1.JobFailed))
	}
	for _, limits := range []struct {
		successful, failed *int32
		want               []string
	}{
		{nil, nil, nil},
		{new(int32(3)), new(int32(2)), []string{"ok0", "bad0", "bad1"}},
		{new(int32(4)), new(int32(9)), nil},
		{nil, new(int32(0)), []string{"bad0", "bad1", "bad2", "bad3"}},
	} {
		cj.Spec.SuccessfulJobsHistoryLimit, cj.Spec.FailedJobsHistoryLimit = limits.successful, limits.failed
		if got := names(c.beyondLimits(cj)); !slices.Equal(got, limits.want) {
			t.Errorf("got %v, want %v", got, limits.want)
		}
	}
}

func TestLastRun_IsTheNewestOfJobsAndStatus(t *testing.T) {
	cj := hourly()
	run := func(t time.Time) *batchv1.Job { return newJob(cj, t) }
	without, broken := run(at(12, 0)), run(at(12, 0))
	without.Annotations, broken.Annotations[v1.ScheduledAtAnnotation] = nil, "noon"
	for name, c := range map[string]struct {
		status *metav1.Time
		jobs   []*batchv1.Job
		want   time.Time
	}{
		"none":                   {},
		"the Jobs":               {nil, []*batchv1.Job{run(at(10, 0)), run(at(11, 0)), run(at(9, 0))}, at(11, 0)},
		"the Job is gone":        {&metav1.Time{Time: at(11, 0)}, []*batchv1.Job{run(at(10, 0))}, at(11, 0)},
		"the status is old":      {&metav1.Time{Time: at(10, 0)}, []*batchv1.Job{run(at(11, 0))}, at(11, 0)},
		"no or a bad annotation": {nil, []*batchv1.Job{without, broken, run(at(10, 0))}, at(10, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			cj.Status.LastScheduleTime = c.status
			got := lastRun(t.Context(), cj, c.jobs)
			if got == nil != c.want.IsZero() || got != nil && !got.Time.Equal(c.want) {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// A run has one Job, whichever process creates it. The template is copied, not shared.
func TestNewJob_DependsOnlyOnTheRun(t *testing.T) {
	cj := hourly()
	cj.Spec.JobTemplate.Labels = map[string]string{"app": "report"}
	cj.Spec.JobTemplate.Annotations = map[string]string{"note": "x"}
	cj.Spec.JobTemplate.Spec.Parallelism = new(int32(2))
	j := newJob(cj, at(10, 0))
	if want := fmt.Sprintf("report-%d", at(10, 0).Unix()); j.Name != want || j.Namespace != "default" || newJob(cj, at(10, 0)).Name != want {
		t.Errorf("the Job is %s/%s, want default/%s", j.Namespace, j.Name, want)
	}
	if j.Annotations[v1.ScheduledAtAnnotation] != "2026-03-04T10:00:00Z" || j.Annotations["note"] != "x" || j.Labels["app"] != "report" {
		t.Errorf("annotations %v, labels %v", j.Annotations, j.Labels)
	}
	if !metav1.IsControlledBy(j, cj) || *j.Spec.Parallelism != 2 {
		t.Errorf("owners %v, spec %+v", j.OwnerReferences, j.Spec)
	}
	j.Labels["app"], *j.Spec.Parallelism = "other", 3
	if template := cj.Spec.JobTemplate; template.Labels["app"] != "report" || *template.Spec.Parallelism != 2 || len(template.Annotations) != 1 {
		t.Errorf("the template became %+v", template)
	}
}

func TestDescribe_Conditions(t *testing.T) {
	active, failed := []*batchv1.Job{job(hourly(), "a", at(10, 0), "")}, []*batchv1.Job{job(hourly(), "f", at(9, 0), batchv1.JobFailed)}
	missed := plan{expired: at(10, 0)}
	for name, c := range map[string]struct {
		suspend                          bool
		jobs                             children
		plan                             plan
		failure                          error
		available, progressing, degraded string
	}{
		"no Job yet":          {available: "True AllJobsCompleted", progressing: "False NoJobsActive", degraded: "False AsExpected"},
		"an active Job":       {jobs: children{active: active}, available: "True JobsActive", progressing: "True JobsActive", degraded: "False AsExpected"},
		"a failed Job":        {jobs: children{failed: failed, active: active}, available: "False JobsFailed", progressing: "True JobsActive", degraded: "True JobsFailed"},
		"suspended":           {suspend: true, jobs: children{active: active}, available: "False Suspended", progressing: "True JobsActive", degraded: "False AsExpected"},
		"a missed run":        {plan: missed, available: "True AllJobsCompleted", progressing: "False NoJobsActive", degraded: "True MissedSchedule"},
		"missed, now started": {plan: plan{expired: at(10, 0), run: at(11, 0)}, available: "True AllJobsCompleted", progressing: "False NoJobsActive", degraded: "False AsExpected"},
		"a problem":           {plan: missed, failure: fmt.Errorf("wrapped: %w", &problem{reasonNotCreated, errors.New("quota")}), available: "True AllJobsCompleted", progressing: "False NoJobsActive", degraded: "True JobCreationFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			cj := hourly()
			deadline(60)(cj)
			cj.Spec.Suspend = &c.suspend
			describe(cj, &c.jobs, c.plan, c.failure)
			for kind, want := range map[string]string{v1.ConditionAvailable: c.available, v1.ConditionProgressing: c.progressing, v1.ConditionDegraded: c.degraded} {
				if got := condition(cj, kind); got != want {
					t.Errorf("%s is %s, want %s", kind, got, want)
				}
			}
			if len(cj.Status.Active) != len(c.jobs.active) {
				t.Errorf("status.active is %v", cj.Status.Active)
			}
		})
	}
}

// condition returns the status and the reason of a condition.
func condition(cj *v1.CronJob, name string) string {
	c := meta.FindStatusCondition(cj.Status.Conditions, name)
	if c == nil {
		return "missing"
	}
	return string(c.Status) + " " + c.Reason
}
