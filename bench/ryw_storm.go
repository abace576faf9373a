// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// storm has many keys that go through cycles: a Deployment's ConfigMap is created, updated, then
// deleted while the Deployment's status advances. Each Reconcile does the next step according to
// its cache, and makes its key due again immediately, as another client's change may at any time.
// The storm remembers the last write of each key. A Reconcile that reads an older version is stale.
// The API server refuses most of its writes.
type storm struct {
	keys, cycles, quiet, workers int

	begin sync.Once
	began time.Time     // of the first Reconcile
	over  chan struct{} // closed when all cycles are done

	runs, stale, refused, cycled, quietRuns atomic.Int64
	// Waits that were given up, and Reconciles that may not see all writes.
	expired, doubted atomic.Int64

	mu      sync.Mutex // guards the map written
	written map[key]*wrote
}

// wrote is the last write of a key. Only its own Reconciles access it, one at a time.
type wrote struct {
	parent, child version
	gone          types.UID // of the deleted child, until there is another
}

type version struct {
	uid types.UID
	rv  string
}

// access is how a contestant reads and writes. Reads come from its cache; a missing object is nil.
type access struct {
	parent func(context.Context, key) (*appsv1.Deployment, error)
	child  func(context.Context, key) (*corev1.ConfigMap, error)
	status func(context.Context, *appsv1.Deployment) (*appsv1.Deployment, error)
	create func(context.Context, *corev1.ConfigMap) (*corev1.ConfigMap, error)
	update func(context.Context, *corev1.ConfigMap) (*corev1.ConfigMap, error)
	remove func(context.Context, *corev1.ConfigMap) error
}

const stormNamespace = "default"

func loudName(i int) string { return fmt.Sprintf("loud-%d", i) }

func quietName(i int) string { return fmt.Sprintf("quiet-%d", i) }

func stormObject(name string) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: stormNamespace},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.test/none"}}},
			},
		},
	}
}

func newStorm(keys, cycles, quiet, workers int) *storm {
	return &storm{keys: keys, cycles: cycles, quiet: quiet, workers: workers, over: make(chan struct{}), written: map[key]*wrote{}}
}

// pause is the interval between the Reconciles of a quiet key.
const pause = 10 * time.Millisecond

// reconcile is every contestant's Reconcile. It returns whether the key is due again, and after
// what time; 0 is immediately.
func (st *storm) reconcile(ctx context.Context, a access, k key) (after time.Duration, again bool, err error) {
	st.begin.Do(func() { st.began = time.Now() })
	switch {
	case strings.HasPrefix(k.Name, "quiet-"):
		if _, err := a.parent(ctx, k); err != nil {
			return 0, false, err
		}
		st.quietRuns.Add(1)
		return pause, true, nil
	case !strings.HasPrefix(k.Name, "loud-"):
		return 0, false, nil
	}
	parent, err := a.parent(ctx, k)
	if err != nil || parent == nil {
		return 0, false, err
	}
	child, err := a.child(ctx, k)
	if err != nil {
		return 0, false, err
	}
	w := st.lastWrite(k)
	st.runs.Add(1)
	if w.after(parent, child) {
		st.stale.Add(1)
	}
	again, err = st.step(ctx, a, w, parent, child)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		st.refused.Add(1)
	}
	return 0, again && err == nil, err
}

// step does the next step and reports whether more follow.
func (st *storm) step(ctx context.Context, a access, w *wrote, parent *appsv1.Deployment, child *corev1.ConfigMap) (again bool, err error) {
	if parent.Status.ObservedGeneration >= int64(st.cycles) {
		return false, nil
	}
	cycle := strconv.FormatInt(parent.Status.ObservedGeneration, 10)
	switch {
	case child == nil:
		child = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: parent.Name, Namespace: parent.Namespace}, Data: map[string]string{"cycle": cycle}}
		child, err = a.create(ctx, child)
	case child.Data["updated"] != cycle:
		child.Data["updated"] = cycle
		child, err = a.update(ctx, child)
	default:
		return true, st.finish(ctx, a, w, parent, child)
	}
	if err == nil {
		w.child, w.gone = version{child.UID, child.ResourceVersion}, ""
	}
	return true, err
}

// finish ends a cycle.
func (st *storm) finish(ctx context.Context, a access, w *wrote, parent *appsv1.Deployment, child *corev1.ConfigMap) error {
	parent.Status.ObservedGeneration++
	parent, err := a.status(ctx, parent)
	if err != nil {
		return err
	}
	w.parent = version{parent.UID, parent.ResourceVersion}
	if st.cycled.Add(1) == int64(st.keys*st.cycles) {
		close(st.over)
	}
	if err := a.remove(ctx, child); err != nil {
		return err
	}
	w.child, w.gone = version{}, child.UID
	return nil
}

func (st *storm) lastWrite(k key) *wrote {
	st.mu.Lock()
	defer st.mu.Unlock()
	w := st.written[k]
	if w == nil {
		w = &wrote{}
		st.written[k] = w
	}
	return w
}

// after reports whether the last write is newer than what was read. Only the key itself writes to
// its objects.
func (w *wrote) after(parent *appsv1.Deployment, child *corev1.ConfigMap) bool {
	if w.parent.newer(parent.UID, parent.ResourceVersion) {
		return true
	}
	if child == nil {
		return w.child.uid != ""
	}
	return child.UID == w.gone || w.child.newer(child.UID, child.ResourceVersion)
}

func (v version) newer(uid types.UID, rv string) bool {
	return v.uid != "" && (uid != v.uid || number(rv) < number(v.rv))
}

func number(rv string) int64 {
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (st *storm) finished() bool { return st.cycled.Load() == int64(st.keys*st.cycles) }
