// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency_test

import (
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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var configMaps = schema.GroupResource{Resource: "configmaps"}

// informer never runs: tests fill its store.
type informer struct {
	shared toolscache.SharedIndexInformer
	synced bool
	phase  hook.Phase
}

// newCopy returns a synced copy with these ConfigMaps at version 5.
func newCopy(t *testing.T, names ...string) (*consistency.Copy, *informer) {
	t.Helper()
	i := &informer{synced: true, phase: hook.Synced}
	i.shared = toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
	for _, name := range names {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "5"}}
		if err := i.shared.GetStore().Add(m); err != nil {
			t.Fatal(err)
		}
	}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	return &consistency.Copy{
		Shared: i.shared, HasSynced: func() bool { return i.synced }, Phase: func() hook.Phase { return i.phase },
		Standing: func() string { return string(i.phase) }, Undecodable: func(types.NamespacedName) error { return nil },
		Name: "ConfigMap.v1", Kind: kind, Guess: *consistency.UsualPlural(kind),
	}, i
}

func of(name, version string) consistency.Write {
	return consistency.Write{Resource: configMaps, Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: version}
}

// TestCopy_Shows: while the informer follows the API server, the store alone decides.
func TestCopy_Shows(t *testing.T) {
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
		copied, i := newCopy(t, "a")
		if got, why := copied.Shows(&c.w); got != c.want || (got == consistency.Unclear) != (why != nil) {
			t.Errorf("%s: got %d, %v; want %d", what, got, why, c.want)
		}
		i.synced, i.phase = false, hook.Failing
		if got, _ := copied.Shows(&c.w); got != consistency.Behind {
			t.Errorf("%s: it fails, and shows %d", what, got)
		}
	}
}

// TestC6_AnEventBeforeARestore: another informer has delivered a deletion or a change, and the
// API server was restored to before it. The list of the restored server shows all there is.
func TestC6_AnEventBeforeARestore(t *testing.T) {
	for _, gone := range []bool{true, false} {
		copied, i := newCopy(t, "a")
		w := of("a", "6")
		now := time.Now()
		w.Gone, w.Event = gone, &consistency.Event{At: now, By: "another"}
		if got, _ := copied.Shows(&w); got != consistency.Behind {
			t.Errorf("gone %t: before the restore it shows %d", gone, got)
		}
		copied.Reset(now.Add(-time.Second))
		if got, _ := copied.Shows(&w); got != consistency.Behind {
			t.Errorf("gone %t: for a later event it shows %d", gone, got)
		}
		copied.Reset(now)
		if got, _ := copied.Shows(&w); got != consistency.Shown {
			t.Errorf("gone %t: after the restore it shows %d", gone, got)
		}
		// An old event may come after the restore was found.
		copied.Reset(now.Add(-time.Second))
		if err := i.shared.GetStore().Replace(i.shared.GetStore().List(), "7"); err != nil {
			t.Fatal(err)
		}
		if got, _ := copied.Shows(&w); got != consistency.Shown {
			t.Errorf("gone %t: at a later version it shows %d", gone, got)
		}
	}
}

// TestCopy_Excludes: a write that the selectors exclude is shown if the object is absent.
func TestCopy_Excludes(t *testing.T) {
	copied, _ := newCopy(t)
	copied.Labels = labels.SelectorFromSet(labels.Set{"app": "a"})
	w := of("b", "6")
	for app, want := range map[string]consistency.Verdict{"a": consistency.Behind, "b": consistency.Shown} {
		w.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}}
		if got, _ := copied.Shows(&w); got != want {
			t.Errorf("app=%s: got %d", app, got)
		}
	}
}

// TestCopy_Notify: a waiter is called once, when the answer changes or at the end.
func TestCopy_Notify(t *testing.T) {
	copied, i := newCopy(t)
	w := of("a", "5")
	calls := 0
	open := func() bool { v, _ := copied.Shows(&w); return v == consistency.Behind }
	copied.Notify(&w, open, func() { calls++ })
	cancel := copied.Notify(&w, open, func() { t.Error("it was cancelled") })
	cancel()
	copied.Look()
	if calls != 0 {
		t.Error("called too early")
	}
	if err := i.shared.GetStore().Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: "5"}}); err != nil {
		t.Fatal(err)
	}
	copied.Look()
	copied.Look()
	copied.End(true)
	if calls != 1 {
		t.Errorf("called %d times", calls)
	}
	copied.Notify(&w, func() bool { return true }, func() { calls++ })
	if calls != 2 {
		t.Error("nothing comes after the end")
	}
}
