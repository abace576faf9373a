// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/setpoint-dev/setpoint/examples/cronjob/api/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCronJob runs the controller against a real API server, with a clock that the test sets and
// the permissions of config/rbac. There is no Job controller: the test writes the status of Jobs.
func TestCronJob(t *testing.T) {
	w := start(t)
	t.Run("book", w.book)
	t.Run("starts each run once", w.startsEachRunOnce)
	t.Run("Forbid starts the run when the active Job ends", w.forbid)
	t.Run("Replace deletes the active Job first", w.replace)
	t.Run("starts nothing while it is suspended", w.suspend)
	t.Run("does not repeat a run whose Job is gone", w.gone)
	t.Run("reports a missed deadline until the next run", w.deadline)
	t.Run("reports a schedule that it cannot follow", w.schedule)
	t.Run("retries a Job that cannot be created", w.notCreated)
	t.Run("has the defaults and limits of the schema", w.schema)
}

// book follows the test of the Kubebuilder book.
func (w *world) book(t *testing.T) {
	cj := w.create(t, nil)
	if got := w.get(t, cj); len(got.Status.Active) != 0 || condition(got, v1.ConditionAvailable) != "True AllJobsCompleted" {
		t.Fatalf("without a Job the status is %+v", got.Status)
	}
	w.addJob(t, cj, "test-job", nil)
	got := w.get(t, cj)
	if len(got.Status.Active) != 1 || got.Status.Active[0].Name != "test-job" || condition(got, v1.ConditionAvailable) != "True JobsActive" {
		t.Errorf("with an active Job the status is %+v", got.Status)
	}

	w.patch(t, cj, `{"spec":{"failedJobsHistoryLimit":1,"successfulJobsHistoryLimit":1}}`)
	w.addJob(t, cj, "failed-old", finished(batchv1.JobFailed, w.base))
	w.addJob(t, cj, "failed-new", finished(batchv1.JobFailed, w.base.Add(time.Minute)))
	w.addJob(t, cj, "successful-new", finished(batchv1.JobComplete, w.base.Add(time.Minute)))
	w.addJob(t, cj, "successful-old", finished(batchv1.JobComplete, w.base))
	if got, want := w.jobsOf(t, cj), []string{"failed-new", "successful-new", "test-job"}; !slices.Equal(got, want) {
		t.Errorf("the Jobs are %v, want %v", got, want)
	}
	if got := w.get(t, cj); condition(got, v1.ConditionDegraded) != "True JobsFailed" {
		t.Errorf("with a failed Job the status is %+v", got.Status)
	}
}

func (w *world) startsEachRunOnce(t *testing.T) {
	cj := w.create(t, func(cj *v1.CronJob) {
		cj.Spec.JobTemplate.Labels = map[string]string{"app": "report"}
		cj.Spec.JobTemplate.Annotations = map[string]string{"note": "x"}
	})
	first := runOf(cj, 1)
	if w.at(t, cj, first.Add(-time.Second)); len(w.jobsOf(t, cj)) != 0 {
		t.Errorf("before the first run there are %v", w.jobsOf(t, cj))
	}
	w.at(t, cj, first)
	w.wantWrites(t, "create jobs", "update cronjobs/status")
	w.at(t, cj, first.Add(time.Minute))
	w.wantWrites(t)
	w.at(t, cj, runOf(cj, 4).Add(time.Minute)) // skips two
	if got, want := w.jobsOf(t, cj), []string{jobName(cj, 1), jobName(cj, 4)}; !slices.Equal(got, want) {
		t.Fatalf("the Jobs are %v, want %v", got, want)
	}
	job, err := w.jobs.GetLive(t.Context(), types.NamespacedName{Namespace: cj.Namespace, Name: jobName(cj, 1)})
	if err != nil || !metav1.IsControlledBy(job, cj) || job.Labels["app"] != "report" || job.Annotations["note"] != "x" ||
		job.Annotations[v1.ScheduledAtAnnotation] != first.Format(time.RFC3339) {
		t.Errorf("the Job is %+v, %v", job, err)
	}
	got := w.get(t, cj)
	if len(got.Status.Active) != 2 || !got.Status.LastScheduleTime.Time.Equal(runOf(cj, 4)) {
		t.Errorf("the status is %+v", got.Status)
	}
	if !w.hasTimer(cj) {
		t.Error("no timer makes the CronJob due at its next run")
	}
}

func (w *world) forbid(t *testing.T) {
	cj := w.create(t, func(cj *v1.CronJob) { cj.Spec.ConcurrencyPolicy = v1.ForbidConcurrent })
	w.at(t, cj, runOf(cj, 1))
	w.at(t, cj, runOf(cj, 2))
	if got, want := w.jobsOf(t, cj), []string{jobName(cj, 1)}; !slices.Equal(got, want) {
		t.Fatalf("the Jobs are %v, want %v", got, want)
	}
	w.finish(t, cj, jobName(cj, 1))
	if got, want := w.jobsOf(t, cj), []string{jobName(cj, 1), jobName(cj, 2)}; !slices.Equal(got, want) {
		t.Errorf("the Jobs are %v, want %v", got, want)
	}
	if got := w.get(t, cj); len(got.Status.Active) != 1 || got.Status.Active[0].Name != jobName(cj, 2) {
		t.Errorf("the status is %+v", got.Status)
	}
}

func (w *world) replace(t *testing.T) {
	cj := w.create(t, func(cj *v1.CronJob) { cj.Spec.ConcurrencyPolicy = v1.ReplaceConcurrent })
	w.at(t, cj, runOf(cj, 1))
	w.at(t, cj, runOf(cj, 2))
	w.wantWrites(t, "delete jobs", "create jobs", "update cronjobs/status")
	if got, want := w.jobsOf(t, cj), []string{jobName(cj, 2)}; !slices.Equal(got, want) {
		t.Errorf("the Jobs are %v, want %v", got, want)
	}
}

func (w *world) suspend(t *testing.T) {
	cj := w.create(t, func(cj *v1.CronJob) { cj.Spec.Suspend = new(true) })
	w.at(t, cj, runOf(cj, 2))
	if got := w.get(t, cj); len(w.jobsOf(t, cj)) != 0 || condition(got, v1.ConditionAvailable) != "False Suspended" || w.hasTimer(cj) {
		t.Errorf("suspended: the Jobs are %v, the status %+v, a timer %v", w.jobsOf(t, cj), got.Status, w.hasTimer(cj))
	}
	w.patch(t, cj, `{"spec":{"suspend":false}}`)
	if got, want := w.jobsOf(t, cj), []string{jobName(cj, 2)}; !slices.Equal(got, want) {
		t.Errorf("resumed: the Jobs are %v, want %v", got, want)
	}
}

func (w *world) gone(t *testing.T) {
	cj := w.create(t, func(cj *v1.CronJob) { cj.Spec.SuccessfulJobsHistoryLimit = new(int32(0)) })
	w.at(t, cj, runOf(cj, 1))
	w.finish(t, cj, jobName(cj, 1))
	w.at(t, cj, runOf(cj, 1).Add(time.Minute))
	if got := w.get(t, cj); len(w.jobsOf(t, cj)) != 0 || !got.Status.LastScheduleTime.Time.Equal(runOf(cj, 1)) {
		t.Errorf("the Jobs are %v, the status %+v", w.jobsOf(t, cj), got.Status)
	}
}

func (w *world) deadline(t *testing.T) {
	cj := w.create(t, func(cj *v1.CronJob) { cj.Spec.StartingDeadlineSeconds = new(int64(60)) })
	w.at(t, cj, runOf(cj, 1).Add(time.Minute))
	if got := w.get(t, cj); len(w.jobsOf(t, cj)) != 0 || condition(got, v1.ConditionDegraded) != "True MissedSchedule" || !w.hasTimer(cj) {
		t.Errorf("too late: the Jobs are %v, the status %+v, a timer %v", w.jobsOf(t, cj), got.Status, w.hasTimer(cj))
	}
	w.at(t, cj, runOf(cj, 2).Add(59*time.Second))
	if got, want := w.jobsOf(t, cj), []string{jobName(cj, 2)}; !slices.Equal(got, want) || condition(w.get(t, cj), v1.ConditionDegraded) != "False AsExpected" {
		t.Errorf("in time: the Jobs are %v, want %v; the status %+v", got, want, w.get(t, cj).Status)
	}
}

func (w *world) schedule(t *testing.T) {
	w.fails = true
	cj := w.create(t, func(cj *v1.CronJob) { cj.Spec.Schedule = "soon" })
	if got := w.get(t, cj); condition(got, v1.ConditionDegraded) != "True InvalidSchedule" || w.hasTimer(cj) {
		t.Errorf("invalid: the status is %+v, a timer %v", got.Status, w.hasTimer(cj))
	}
	w.fails = false
	w.patch(t, cj, `{"spec":{"schedule":"0 * * * *"}}`)
	w.fails = true
	w.at(t, cj, runOf(cj, 101))
	if got := w.get(t, cj); condition(got, v1.ConditionDegraded) != "True TooManyMissedRuns" || len(w.jobsOf(t, cj)) != 0 {
		t.Errorf("too many: the Jobs are %v, the status %+v", w.jobsOf(t, cj), got.Status)
	}
	w.fails = false
	w.patch(t, cj, `{"spec":{"startingDeadlineSeconds":60}}`)
	if got, want := w.jobsOf(t, cj), []string{jobName(cj, 101)}; !slices.Equal(got, want) || condition(w.get(t, cj), v1.ConditionDegraded) != "False AsExpected" {
		t.Errorf("with a deadline: the Jobs are %v, want %v; the status %+v", got, want, w.get(t, cj).Status)
	}
}

// notCreated takes the name of the Job away. Idle waits for the short backoffs, but not for the
// long ones.
func (w *world) notCreated(t *testing.T) {
	cj := w.create(t, nil)
	foreign := newJob(cj, runOf(cj, 1))
	foreign.OwnerReferences = nil
	if _, err := w.jobs.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.fails = true
	w.at(t, cj, runOf(cj, 1))
	if got := w.get(t, cj); condition(got, v1.ConditionDegraded) != "True JobCreationFailed" || got.Status.LastScheduleTime != nil {
		t.Errorf("the name is taken: the status is %+v", got.Status)
	}
	if err := w.jobs.Delete(t.Context(), keyOf(foreign)); err != nil {
		t.Fatal(err)
	}
	w.fails = false
	w.at(t, cj, runOf(cj, 1))
	if got := w.get(t, cj); condition(got, v1.ConditionDegraded) != "False AsExpected" || len(got.Status.Active) != 1 {
		t.Errorf("the name is free: the status is %+v", got.Status)
	}
}

func (w *world) schema(t *testing.T) {
	cj := w.create(t, nil)
	if s := cj.Spec; s.ConcurrencyPolicy != v1.AllowConcurrent || *s.Suspend || *s.SuccessfulJobsHistoryLimit != 3 || *s.FailedJobsHistoryLimit != 1 {
		t.Errorf("the defaults are %+v", s)
	}
	for words, spoil := range map[string]func(*v1.CronJob){
		"no more than 52 characters":   func(cj *v1.CronJob) { cj.Name = strings.Repeat("x", 53) },
		"spec.concurrencyPolicy":       func(cj *v1.CronJob) { cj.Spec.ConcurrencyPolicy = "Perhaps" },
		"spec.startingDeadlineSeconds": func(cj *v1.CronJob) { cj.Spec.StartingDeadlineSeconds = new(int64(-1)) },
		"spec.failedJobsHistoryLimit":  func(cj *v1.CronJob) { cj.Spec.FailedJobsHistoryLimit = new(int32(-1)) },
	} {
		bad := sample(cj.Namespace)
		bad.Name = "bad"
		spoil(bad)
		if _, err := w.cronJobs.Create(t.Context(), bad); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want an error with %q", err, words)
		}
	}
	if err := w.cluster.Apply(t.Context(), "config/samples"); err != nil {
		t.Error(err)
	}
}
