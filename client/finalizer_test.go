// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

const finalizer = "example.com/cleanup"

func finalized(t *testing.T) (*sim.Server, *client.Handle[*corev1.ConfigMap], *corev1.ConfigMap) {
	t.Helper()
	api := sim.NewServer(sim.ConfigMaps)
	maps := client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	m, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	testkit.NoError(t, err)
	return api, maps, m
}

func stored(api *sim.Server) []string {
	return api.Object(sim.ConfigMaps, "default", "a").GetFinalizers()
}

func TestFinalizer(t *testing.T) {
	api, maps, old := finalized(t)
	ctx := t.Context()
	m, err := maps.EnsureFinalizer(ctx, old, finalizer)
	if err != nil || !slices.Equal(m.Finalizers, []string{finalizer}) || len(old.Finalizers) != 0 {
		t.Fatal(m, err)
	}
	testkit.Equal(t, testkit.Must(maps.EnsureFinalizer(ctx, m, finalizer)), m)
	testkit.Equal(t, api.Count("patch", sim.ConfigMaps), 1)
	// Another client adds a finalizer meanwhile, and the cache shows neither.
	theirs := m.DeepCopy()
	theirs.Finalizers = append(theirs.Finalizers, "example.com/theirs")
	api.Put(sim.ConfigMaps, theirs)
	m, err = maps.EnsureFinalizer(ctx, old, "example.com/more")
	if want := []string{finalizer, "example.com/theirs", "example.com/more"}; err != nil || !slices.Equal(m.Finalizers, want) || !slices.Equal(stored(api), want) {
		t.Error(m, err)
	}
	if m, err = maps.EnsureFinalizer(ctx, old, finalizer); err != nil || len(m.Finalizers) != 3 {
		t.Error("found out that it is there:", m, err)
	}
	m, err = maps.RemoveFinalizer(ctx, theirs, finalizer, client.FieldOwner("x"))
	if want := []string{"example.com/theirs", "example.com/more"}; err != nil || !slices.Equal(m.Finalizers, want) || !slices.Equal(stored(api), want) {
		t.Error(m, err)
	}
	if r := api.Requests()[len(api.Requests())-1]; r.Verb != "patch" || r.Query.Get("fieldManager") != "x" {
		t.Errorf("%s %v", r, r.Query)
	}
	n := len(api.Requests())
	testkit.Equal(t, testkit.Must(maps.RemoveFinalizer(ctx, m, finalizer)), m)
	testkit.Len(t, api.Requests(), n)
	// The end: too late to add, and what is removed last lets it go.
	testkit.NoError(t, maps.Delete(ctx, name("default", "a")))
	_, err = maps.EnsureFinalizer(ctx, m, finalizer)
	wants(t, err, "add the finalizer "+finalizer+" to ConfigMap default/a", "being deleted", "takes no new finalizers")
	testkit.Equal(t, testkit.Err(maps.EnsureFinalizer(ctx, m, "example.com/more")), nil, "one that is there:")
	for _, f := range []string{"example.com/more", "example.com/theirs", finalizer} {
		testkit.Equal(t, testkit.Err(maps.RemoveFinalizer(ctx, m, f)), nil)
	}
	testkit.Equal(t, api.Object(sim.ConfigMaps, "default", "a"), nil, "it is still there")
	testkit.Equal(t, testkit.Must(maps.RemoveFinalizer(ctx, m, "example.com/more")), m, "one that is gone")
	if left, err := maps.EnsureFinalizer(ctx, old, finalizer); left != nil || !apierrors.IsNotFound(err) {
		t.Error("one that is gone:", left, err)
	}
}

// TestFinalizerSuccessor shows that another object of the same name is left alone.
func TestFinalizerSuccessor(t *testing.T) {
	api, maps, old := finalized(t)
	old.Finalizers = []string{finalizer}
	api.Remove(sim.ConfigMaps, "default", "a")
	api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Finalizers: []string{finalizer}}})
	testkit.Equal(t, testkit.Must(maps.RemoveFinalizer(t.Context(), old, finalizer)), old)
	_, err := maps.EnsureFinalizer(t.Context(), old, "example.com/more")
	testkit.ErrorSatisfies(t, err, apierrors.IsConflict)
	wants(t, err, "default/a", "deleted and created again")
	testkit.SlicesEqual(t, stored(api), []string{finalizer}, "the new one has")
}

// TestFinalizerConflicts shows that it does not try for ever.
func TestFinalizerConflicts(t *testing.T) {
	api, maps, m := finalized(t)
	n := 0
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Verb == "patch" { // another client is always faster
			n++
			busy := m.DeepCopy()
			busy.Data = map[string]string{"n": fmt.Sprint(n)}
			busy.ResourceVersion = ""
			api.Put(sim.ConfigMaps, busy)
		}
		return nil, nil
	})
	_, err := maps.EnsureFinalizer(t.Context(), m, finalizer)
	if !apierrors.IsConflict(err) || n != 5 || len(stored(api)) != 0 {
		t.Errorf("after %d: %v", n, err)
	}
	if left, err := maps.RemoveFinalizer(t.Context(), func() *corev1.ConfigMap {
		m := m.DeepCopy()
		m.Finalizers = []string{finalizer}
		return m
	}(), finalizer); err != nil || len(left.Finalizers) != 0 {
		t.Error("the object that was read anew has none:", left, err)
	}
}

func TestFinalizerMistakes(t *testing.T) {
	api, maps, m := finalized(t)
	bare := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	before := len(api.Requests())
	for what, c := range map[string]struct {
		obj       *corev1.ConfigMap
		finalizer string
		option    client.Option
		want      []string
	}{
		"nil":           {nil, finalizer, client.Option{}, []string{"ConfigMap", "the object is nil"}},
		"not read":      {bare, finalizer, client.Option{}, []string{"default/a", "no UID or no resourceVersion"}},
		"no domain":     {m, "cleanup", client.Option{}, []string{`"cleanup"`, "example.com/cleanup"}},
		"no finalizer":  {m, "", client.Option{}, []string{`""`, "give a domain"}},
		"wrong letters": {m, "example.com/a b", client.Option{}, []string{`"example.com/a b"`}},
	} {
		_, err := maps.EnsureFinalizer(t.Context(), c.obj, c.finalizer, c.option)
		wants(t, err, append(c.want, "add the finalizer")...)
		_, err = maps.RemoveFinalizer(t.Context(), c.obj, c.finalizer, c.option)
		wants(t, err, append(c.want, "remove the finalizer")...)
		testkit.Equal(t, len(api.Requests()), before, what, "something was sent")
	}
	_, err := maps.EnsureFinalizer(t.Context(), m, finalizer, client.GracePeriod(0))
	wants(t, err, "this call does not take client.GracePeriod")
}
