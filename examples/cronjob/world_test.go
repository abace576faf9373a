// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	v1 "github.com/setpoint-dev/setpoint/examples/cronjob/api/v1"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/workqueue"
)

const user = "system:serviceaccount:cronjob-system:cronjob-controller"

// binding gives the controller's user the generated roles.
const binding = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: cronjob-controller},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cronjob-controller},
 subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "` + user + `"}]}
`

// world is a control plane with a controller whose clock the test sets.
type world struct {
	cluster  *envtest.Cluster
	mgr      *manager.Manager
	c        *controller.Controller[types.NamespacedName]
	cronJobs *client.Handle[*v1.CronJob] // as the administrator
	jobs     *client.Handle[*batchv1.Job]
	base     time.Time // the full hour before the test
	fails    bool      // the CronJob of the test cannot be reconciled now

	mu     sync.Mutex
	clock  time.Time
	writes []string // of the controller since the last call of at
}

func start(t *testing.T) *world {
	t.Helper()
	cluster, err := envtest.Start(t.Context(), envtest.Options{
		CRDs: []string{"config/crd"},
		// As strict as a cluster may be: a blocking owner reference requires a permission.
		APIServerArgs: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	base := time.Now().UTC().Truncate(time.Hour)
	w := &world{cluster: cluster, base: base, clock: base}
	const namespace = `{apiVersion: v1, kind: Namespace, metadata: {name: cronjob-system}}`
	for _, err := range []error{
		cluster.ApplyYAML(t.Context(), []byte(namespace)),
		cluster.Apply(t.Context(), "config/rbac"),
		cluster.ApplyYAML(t.Context(), []byte(binding)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	account, err := cluster.ConfigFor(user)
	if err != nil {
		t.Fatal(err)
	}
	w.mgr, w.c, err = operator(account, manager.Options{Hook: hook.On(func(e *hook.APIRequest) { w.requested(*e) })}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.mgr.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	admin, err := client.New(cluster.Config(), client.Options{Scheme: w.mgr.Client().Scheme(), FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	w.cronJobs, w.jobs = client.For[*v1.CronJob](admin), client.For[*batchv1.Job](admin)
	return w
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *world) requested(r hook.APIRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	if r.Verb == "create" || r.Verb == "update" || r.Verb == "delete" {
		w.writes = append(w.writes, what)
	}
}

// set sets the clock and forgets the writes.
func (w *world) set(clock time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock, w.writes = clock, nil
}

// at sets the clock, as if the timer of the CronJob ended then, and waits for the controller.
func (w *world) at(t *testing.T, cj *v1.CronJob, clock time.Time) {
	t.Helper()
	w.set(clock)
	w.c.Requeue(keyOf(cj))
	w.idle(t)
}

func (w *world) idle(t *testing.T) {
	t.Helper()
	err := w.mgr.Idle(t.Context())
	if _, fails := errors.AsType[*manager.FailingError](err); fails != w.fails || err != nil && !fails {
		t.Fatalf("want a failing CronJob: %v, got %v", w.fails, err)
	}
}

func (w *world) wantWrites(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.writes, want) {
		t.Errorf("the writes are %q, want %q", w.writes, want)
	}
}

// hasTimer reports whether the CronJob waits for its next run.
func (w *world) hasTimer(cj *v1.CronJob) bool {
	return slices.ContainsFunc(w.c.Snapshot().Queue.Keys, func(s workqueue.KeyState[types.NamespacedName]) bool {
		return s.Key == keyOf(cj) && !s.Due.IsZero()
	})
}

// sample returns an hourly CronJob that is not created yet.
func sample(namespace string) *v1.CronJob {
	cj := &v1.CronJob{Spec: v1.CronJobSpec{Schedule: "0 * * * *"}}
	cj.Namespace, cj.Name = namespace, "report"
	cj.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyOnFailure,
		Containers:    []corev1.Container{{Name: "c", Image: "i"}},
	}
	return cj
}

// create creates an hourly CronJob in a namespace of its own.
func (w *world) create(t *testing.T, change func(*v1.CronJob)) *v1.CronJob {
	t.Helper()
	w.set(w.base)
	namespace, err := w.cluster.Namespace(t.Context(), "cronjob")
	if err != nil {
		t.Fatal(err)
	}
	cj := sample(namespace)
	if change != nil {
		change(cj)
	}
	cj, err = w.cronJobs.Create(t.Context(), cj)
	if err != nil {
		t.Fatal(err)
	}
	w.idle(t)
	return cj
}

// runOf returns the time of the nth run after the creation.
func runOf(cj *v1.CronJob, n int) time.Time {
	return cj.CreationTimestamp.UTC().Truncate(time.Hour).Add(time.Duration(n) * time.Hour)
}

func jobName(cj *v1.CronJob, n int) string { return newJob(cj, runOf(cj, n)).Name }

func (w *world) patch(t *testing.T, cj *v1.CronJob, patch string) {
	t.Helper()
	if _, err := w.cronJobs.Patch(t.Context(), keyOf(cj), types.MergePatchType, []byte(patch)); err != nil {
		t.Fatal(err)
	}
	w.idle(t)
}

func (w *world) get(t *testing.T, cj *v1.CronJob) *v1.CronJob {
	t.Helper()
	got, err := w.cronJobs.GetLive(t.Context(), keyOf(cj))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// jobsOf returns the names of the Jobs, sorted.
func (w *world) jobsOf(t *testing.T, cj *v1.CronJob) []string {
	t.Helper()
	found, err := client.Collect(w.jobs.ListLive(t.Context(), client.ListOptions{Namespace: cj.Namespace}))
	if err != nil {
		t.Fatal(err)
	}
	all := names(found)
	slices.Sort(all)
	return all
}

// addJob creates a Job that the CronJob owns, as the book's test does. Without a status it is
// active.
func (w *world) addJob(t *testing.T, cj *v1.CronJob, name string, status *batchv1.JobStatus) {
	t.Helper()
	j := newJob(cj, w.base)
	j.Name, j.Annotations = name, nil
	j, err := w.jobs.Create(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	if status == nil {
		status = &batchv1.JobStatus{Active: 2}
	}
	w.writeStatus(t, j, status)
}

// finish ends a Job as the Job controller would.
func (w *world) finish(t *testing.T, cj *v1.CronJob, name string) {
	t.Helper()
	j, err := w.jobs.GetLive(t.Context(), types.NamespacedName{Namespace: cj.Namespace, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	w.writeStatus(t, j, finished(batchv1.JobComplete, w.base))
}

func (w *world) writeStatus(t *testing.T, j *batchv1.Job, status *batchv1.JobStatus) {
	t.Helper()
	j.Status = *status
	if _, err := w.jobs.UpdateStatus(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	w.idle(t)
}

// finished returns the status of a finished Job that the API server accepts.
func finished(as batchv1.JobConditionType, start time.Time) *batchv1.JobStatus {
	s := &batchv1.JobStatus{StartTime: &metav1.Time{Time: start}}
	before := batchv1.JobFailureTarget
	if as == batchv1.JobComplete {
		before, s.CompletionTime = batchv1.JobSuccessCriteriaMet, s.StartTime
	}
	for _, c := range []batchv1.JobConditionType{before, as} {
		s.Conditions = append(s.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue})
	}
	return s
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
