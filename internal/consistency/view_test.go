// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var configMaps = schema.GroupResource{Resource: "configmaps"}

// informer never runs: tests fill its store.
type informer struct {
	shared toolscache.SharedIndexInformer
	synced bool
	phase  hook.Phase
}

func (i *informer) HasSynced() bool { return i.synced }

func (i *informer) Phase() hook.Phase { return i.phase }

func (i *informer) Standing() string { return string(i.phase) }

func (*informer) Undecodable(types.NamespacedName) error { return nil }

func (*informer) Outside(*consistency.Write) bool { return false }

func (*informer) Joins(*consistency.Write) bool { return false }

func (*informer) Doubts(*consistency.Write) bool { return false }

// newView returns a synced view with these ConfigMaps at version 5.
func newView(t *testing.T, names ...string) (*consistency.View, *informer) {
	t.Helper()
	i := &informer{synced: true, phase: hook.Synced}
	i.shared = toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
	for _, name := range names {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "5"}}
		testkit.NoError(t, i.shared.GetStore().Add(m))
	}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	return &consistency.View{
		Informer: i, Shared: i.shared,
		Name: "ConfigMap.v1", Kind: kind, Guess: *consistency.UsualPlural(kind),
	}, i
}

func of(name, version string) consistency.Write {
	return consistency.Write{Resource: configMaps, Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: version}
}

// TestView_Shows: while the informer follows the API server, the store alone decides.
func TestView_Shows(t *testing.T) {
	gone := func(name, version string) consistency.Write {
		w := of(name, version)
		w.Gone = true
		return w
	}
	for what, c := range map[string]struct {
		w    consistency.Write
		want consistency.Verdict
	}{
		"the same version": {of("a", "5"), consistency.Shown},
		"an earlier one":   {of("a", "4"), consistency.Shown},
		"a later one":      {of("a", "6"), consistency.Behind},
		"a new object":     {of("b", "6"), consistency.Behind},
		"still there":      {gone("a", ""), consistency.Behind},
		"gone":             {gone("b", ""), consistency.Shown},
		"no version":       {of("b", ""), consistency.Unclear},
		"no number":        {of("b", "x"), consistency.Unclear},
	} {
		view, i := newView(t, "a")
		if got, why := view.Shows(&c.w); got != c.want || (got == consistency.Unclear) != (why != nil) {
			t.Errorf("%s: got %d, %v; want %d", what, got, why, c.want)
		}
		i.synced, i.phase = false, hook.Failing
		got, _ := view.Shows(&c.w)
		testkit.Equal(t, got, consistency.Behind, what, "it fails, and shows")
	}
}

// TestC6_AnEventBeforeARestore: another informer has delivered a deletion or a change, and the
// API server was restored to before it. The list of the restored server shows all there is.
func TestC6_AnEventBeforeARestore(t *testing.T) {
	for _, gone := range []bool{true, false} {
		view, i := newView(t, "a")
		w := of("a", "6")
		now := time.Now()
		w.Gone, w.Event = gone, &consistency.Event{At: now, By: "another"}
		got, _ := view.Shows(&w)
		testkit.Equal(t, got, consistency.Behind, fmt.Sprintf("gone %t", gone), "before the restore it shows")
		view.Reset(now.Add(-time.Second))
		if got, _ := view.Shows(&w); got != consistency.Behind {
			t.Errorf("gone %t: for a later event it shows %d", gone, got)
		}
		view.Reset(now)
		if got, _ := view.Shows(&w); got != consistency.Shown {
			t.Errorf("gone %t: after the restore it shows %d", gone, got)
		}
		// An old event may come after the restore was found.
		view.Reset(now.Add(-time.Second))
		testkit.NoError(t, i.shared.GetStore().Replace(i.shared.GetStore().List(), "7"))
		if got, _ := view.Shows(&w); got != consistency.Shown {
			t.Errorf("gone %t: at a later version it shows %d", gone, got)
		}
	}
}

// TestView_Excludes: a write that the selectors exclude is shown if the object is absent.
func TestView_Excludes(t *testing.T) {
	view, _ := newView(t)
	view.Labels = labels.SelectorFromSet(labels.Set{"app": "a"})
	w := of("b", "6")
	for app, want := range map[string]consistency.Verdict{"a": consistency.Behind, "b": consistency.Shown} {
		w.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}}
		got, _ := view.Shows(&w)
		testkit.Equal(t, got, want, fmt.Sprintf("app=%s", app))
	}
}

type waiter struct {
	open func() bool
	wake func()
}

func (w *waiter) Open() bool { return w.open() }

func (w *waiter) Wake() { w.wake() }

// TestView_Notify: a waiter is called once, when the answer changes or at the end.
func TestView_Notify(t *testing.T) {
	view, i := newView(t)
	w := of("a", "5")
	calls := 0
	open := func() bool { v, _ := view.Shows(&w); return v == consistency.Behind }
	view.Notify(&w, &waiter{open, func() { calls++ }})
	cancel := view.Notify(&w, &waiter{open, func() { t.Error("it was cancelled") }})
	cancel()
	view.Look()
	testkit.Equal(t, calls, 0, "called too early")
	testkit.NoError(t, i.shared.GetStore().Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: "5"}}))
	view.Look()
	view.Look()
	view.End(true)
	testkit.Equal(t, calls, 1, "called times")
	view.Notify(&w, &waiter{func() bool { return true }, func() { calls++ }})
	testkit.Equal(t, calls, 2, "nothing comes after the end")
}
