// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

const traceKey = "tracing.k8s.io/traceparent"

// trace returns a traceparent with a digit of its own.
func trace(digit string) string {
	return "00-" + strings.Repeat(digit, 32) + "-" + strings.Repeat(digit, 16) + "-01"
}

func traceOf(o metav1.Object) string {
	value := o.GetAnnotations()[traceKey]
	if value == "" {
		return ""
	}
	return value[3:4]
}

// TestTraceParent_ApplyIgnoresIt: UnlessAlready sends nothing because of another client's
// annotation, and an apply that is sent leaves it.
func TestTraceParent_ApplyIgnoresIt(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	var skipped int
	maps := client.For[*corev1.ConfigMap](newClient(t, api, client.Options{Hook: hook.On(func(*hook.SkippedApply) { skipped++ })}))
	var live *corev1.ConfigMap
	apply := func(value string) {
		t.Helper()
		var err error
		_, err = maps.Apply(t.Context(), corev1ac.ConfigMap("a", "default").WithData(map[string]string{"a": value}), client.UnlessAlready(live))
		testkit.NoError(t, err)
		live, err = maps.GetLive(t.Context(), name("default", "a"))
		testkit.NoError(t, err)
	}
	apply("1")
	patch := `{"metadata":{"annotations":{"` + traceKey + `":"` + trace("7") + `"}}}`
	live, err := maps.Patch(t.Context(), name("default", "a"), types.MergePatchType, []byte(patch), client.FieldOwner("other"))
	testkit.NoError(t, err)
	apply("1")
	testkit.Equal(t, skipped, 1)
	testkit.Equal(t, traceOf(live), "7")
	apply("2")
	testkit.Equal(t, skipped, 1)
	testkit.Equal(t, traceOf(live), "7")
	testkit.Equal(t, live.Data["a"], "2")
}

func traceConfigMaps(t *testing.T) (*sim.Server, *client.Handle[*corev1.ConfigMap]) {
	api := sim.NewServer(sim.ConfigMaps)
	return api, client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
}

// TestTraceParent_OnlyOfNewObjects: the functions that compare give it to an object that they
// create, and neither change nor remove it afterwards, also if the API server drops their change.
func TestTraceParent_OnlyOfNewObjects(t *testing.T) {
	type run = func(h *client.Handle[*corev1.Secret], from *corev1.Secret, mutate func(*corev1.Secret) error, o client.Option) (*corev1.Secret, client.Result, error)
	for function, run := range map[string]run{
		"CreateOrUpdate": func(h *client.Handle[*corev1.Secret], from *corev1.Secret, mutate func(*corev1.Secret) error, o client.Option) (*corev1.Secret, client.Result, error) {
			return client.CreateOrUpdate(t.Context(), h, from, mutate, o)
		},
		"CreateOrPatch": func(h *client.Handle[*corev1.Secret], from *corev1.Secret, mutate func(*corev1.Secret) error, o client.Option) (*corev1.Secret, client.Result, error) {
			return client.CreateOrPatch(t.Context(), h, from, mutate, o)
		},
	} {
		t.Run(function, func(t *testing.T) {
			secrets := client.For[*corev1.Secret](newClient(t, sim.NewServer(sim.Secrets), client.Options{}))
			from := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
			for n, value := range []string{"a", "a", "a", "b", "b"} {
				stored, result, err := run(secrets, from, func(s *corev1.Secret) error {
					s.StringData = map[string]string{"key": value} // the stored object has none
					s.Annotations = map[string]string{"x": value}
					return nil
				}, client.TraceParent(trace(fmt.Sprint(n+1))))
				testkit.NoError(t, err, n)
				testkit.Equal(t, result, []client.Result{client.Created, client.Unchanged, client.Unchanged, client.Updated, client.Unchanged}[n], fmt.Sprintf("call %d", n))
				testkit.Equal(t, traceOf(stored), "1", fmt.Sprintf("call %d", n))
				from, err = secrets.GetLive(t.Context(), name("default", "a"))
				testkit.NoError(t, err)
			}
			after := from.DeepCopy()
			after.Annotations = nil
			if stored, err := client.PatchFrom(t.Context(), secrets, from, after); err != nil || traceOf(stored) != "1" || len(stored.Annotations) != 1 {
				t.Errorf("PatchFrom leaves %v (%v)", stored.Annotations, err)
			}
		})
	}
}

// TestTraceParent_NotInTheCallersObject: neither a typed nor an unstructured object is changed.
func TestTraceParent_NotInTheCallersObject(t *testing.T) {
	api, maps := traceConfigMaps(t)
	given := testkit.ConfigMap("a")
	given.Annotations = map[string]string{"x": "y"}
	testkit.NoError(t, testkit.Err(maps.Create(t.Context(), given, client.TraceParent(trace("1")))))
	testkit.Len(t, given.Annotations, 1)
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	u.SetNamespace("default")
	u.SetName("b")
	u.SetAnnotations(map[string]string{"x": "y"})
	h := client.ForKind[*unstructured.Unstructured](newClient(t, api, client.Options{}), u.GroupVersionKind())
	testkit.Equal(t, traceOf(testkit.Must(h.Create(t.Context(), u, client.TraceParent(trace("1"))))), "1")
	testkit.Len(t, u.GetAnnotations(), 1)
}

// TestTraceParent_IsRefused: calls that may change nothing send nothing with it.
func TestTraceParent_IsRefused(t *testing.T) {
	api, maps := traceConfigMaps(t)
	m, ctx := testkit.ConfigMap("a"), t.Context()
	for what, c := range map[string]struct {
		call func(client.Option) error
		with string
		want string
	}{
		"update": {func(o client.Option) error { _, err := maps.Update(ctx, m, o); return err }, trace("1"), "does not take client.TraceParent"},
		"patch": {func(o client.Option) error {
			_, err := maps.Patch(ctx, name("default", "a"), types.MergePatchType, []byte("{}"), o)
			return err
		}, trace("1"), "does not take client.TraceParent"},
		"apply": {func(o client.Option) error {
			_, err := maps.Apply(ctx, corev1ac.ConfigMap("a", "default"), client.UnlessAlready(nil), o)
			return err
		}, trace("1"), "does not take client.TraceParent"},
		"PatchFrom": {func(o client.Option) error {
			after := m.DeepCopy()
			after.Data = map[string]string{"a": "b"}
			_, err := client.PatchFrom(ctx, maps, m, after, o)
			return err
		}, trace("1"), "does not take client.TraceParent"},
		"format": {func(o client.Option) error { _, err := maps.Create(ctx, m, o); return err }, "00-1-2-01", "W3C"},
	} {
		testkit.ErrorContains(t, c.call(client.TraceParent(c.with)), c.want, what)
	}
	for _, v := range verbs(api) {
		t.Errorf("a %s was sent", v)
	}
}
