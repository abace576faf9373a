// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
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

// TestTraceParent_ApplyTracesOnlyChanges: the annotation of a new trace comes with an apply of
// another configuration, and with no other.
func TestTraceParent_ApplyTracesOnlyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newApplying(t)
		var live *appsv1.Deployment
		apply := func(n int32, digit, want string, versions bool) {
			t.Helper()
			before := ""
			if live != nil {
				before = live.ResourceVersion
			}
			if _, err := a.deployments.Apply(t.Context(), replicas(n), client.UnlessAlready(live), client.TraceParent(trace(digit))); err != nil {
				t.Fatal(err)
			}
			live = a.live()
			if traceOf(live) != want {
				t.Errorf("the Deployment has the trace %q, want %q", traceOf(live), want)
			}
			if changed := live.ResourceVersion != before; changed != versions {
				t.Errorf("trace %s: a new version: %t", digit, changed)
			}
		}
		apply(1, "1", "1", true) // a create
		apply(1, "2", "1", false)
		if len(a.skipped) != 1 {
			t.Errorf("%d applies were skipped, want 1", len(a.skipped))
		}
		apply(2, "3", "3", true)

		time.Sleep(2 * time.Hour) // it is sent, but changes nothing
		sent := a.api.Count("apply", sim.Deployments)
		apply(2, "4", "3", false)
		if n := a.api.Count("apply", sim.Deployments) - sent; n != 1 {
			t.Errorf("%d applies were sent, want 1", n)
		}
		time.Sleep(100 * time.Hour)
		apply(3, "5", "5", true)

		// Another client's change causes an apply, which changes nothing.
		other := func(patch string) {
			t.Helper()
			if _, err := a.deployments.Patch(t.Context(), name("default", "web"), types.MergePatchType, []byte(patch), client.FieldOwner("other")); err != nil {
				t.Fatal(err)
			}
			live = a.live()
		}
		other(`{"metadata":{"labels":{"other":"1"}}}`)
		apply(3, "6", "5", false)

		// A new process knows of no change.
		hooks := hook.On(func(s *hook.SkippedApply) { a.skipped = append(a.skipped, *s) })
		a.deployments = client.For[*appsv1.Deployment](newClient(t, a.api, client.Options{Hook: hooks}))
		apply(3, "7", "5", false)

		// The annotation alone, which increments the generation of a Deployment, causes none.
		other(`{"metadata":{"annotations":{"` + traceKey + `":"` + trace("7") + `"}}}`)
		sent = a.api.Count("apply", sim.Deployments)
		apply(3, "8", "7", false)
		if n := a.api.Count("apply", sim.Deployments) - sent; n != 0 {
			t.Errorf("%d applies were sent because of the annotation", n)
		}
		other(`{"metadata":{"labels":{"other":"2"}}}`) // and a later one takes no part in it
		apply(3, "9", "7", false)
	})
}

// TestTraceParent_AFailedApplyIsStillAChange: its retry has the trace.
func TestTraceParent_AFailedApplyIsStillAChange(t *testing.T) {
	a := newApplying(t)
	if _, err := a.deployments.Apply(t.Context(), replicas(1), client.UnlessAlready(nil), client.TraceParent(trace("1"))); err != nil {
		t.Fatal(err)
	}
	fails := true
	a.api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if fails && r.Verb == "apply" {
			fails = false
			return r.FailWith(metav1.Status{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError})
		}
		return nil, nil
	})
	for n := range 2 {
		_, err := a.deployments.Apply(t.Context(), replicas(2), client.UnlessAlready(a.live()), client.TraceParent(trace("2")))
		if failed := err != nil; failed != (n == 0) {
			t.Fatal(n, err)
		}
	}
	if got := traceOf(a.live()); got != "2" {
		t.Errorf("the Deployment has the trace %q, want 2", got)
	}
}

// TestTraceParent_WithoutASpan: the option changes nothing, not even an annotation that an earlier
// call has set.
func TestTraceParent_WithoutASpan(t *testing.T) {
	a := newApplying(t)
	for n, digit := range []string{"1", ""} {
		value := ""
		if digit != "" {
			value = trace(digit)
		}
		var live *appsv1.Deployment
		if n > 0 {
			live = a.live()
		}
		if _, err := a.deployments.Apply(t.Context(), replicas(int32(n)), client.UnlessAlready(live), client.TraceParent(value)); err != nil {
			t.Fatal(err)
		}
		if got := traceOf(a.live()); got != "1" {
			t.Errorf("the Deployment has the trace %q, want 1", got)
		}
	}
}

func traceConfigMaps(t *testing.T) (*sim.Server, *client.Handle[*corev1.ConfigMap]) {
	api := sim.NewServer(sim.ConfigMaps)
	return api, client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
}

// TestTraceParent_OnlyWithAChange: the functions that compare add the annotation to what they send,
// and send nothing because of it.
func TestTraceParent_OnlyWithAChange(t *testing.T) {
	type write = func(h *client.Handle[*corev1.ConfigMap], from *corev1.ConfigMap, mutate func(*corev1.ConfigMap) error, digit string) error
	for function, write := range map[string]write{
		"CreateOrUpdate": func(h *client.Handle[*corev1.ConfigMap], from *corev1.ConfigMap, mutate func(*corev1.ConfigMap) error, digit string) error {
			_, _, err := client.CreateOrUpdate(t.Context(), h, from, mutate, client.TraceParent(trace(digit)))
			return err
		},
		"CreateOrPatch": func(h *client.Handle[*corev1.ConfigMap], from *corev1.ConfigMap, mutate func(*corev1.ConfigMap) error, digit string) error {
			_, _, err := client.CreateOrPatch(t.Context(), h, from, mutate, client.TraceParent(trace(digit)))
			return err
		},
		"PatchFrom": func(h *client.Handle[*corev1.ConfigMap], from *corev1.ConfigMap, mutate func(*corev1.ConfigMap) error, digit string) error {
			if from.ResourceVersion == "" {
				_ = mutate(from)
				_, err := h.Create(t.Context(), from, client.TraceParent(trace(digit)))
				return err
			}
			after := from.DeepCopy()
			_ = mutate(after)
			_, err := client.PatchFrom(t.Context(), h, from, after, client.TraceParent(trace(digit)), client.OptimisticLock())
			return err
		},
	} {
		t.Run(function, func(t *testing.T) {
			api, maps := traceConfigMaps(t)
			steps := []struct {
				digit, want string
				mutate      func(*corev1.ConfigMap) error
				verbs       []string
			}{
				{"1", "1", fill, []string{"create"}},
				{"2", "1", fill, nil},
				{"3", "3", func(m *corev1.ConfigMap) error { m.Data = map[string]string{"a": "c"}; return nil }, []string{"write"}},
				{"4", "4", func(m *corev1.ConfigMap) error { m.Annotations = map[string]string{"x": "y"}; return nil }, []string{"write"}},
				{"5", "4", func(m *corev1.ConfigMap) error { m.Annotations = map[string]string{"x": "y"}; return nil }, nil},
				{"6", "6", func(m *corev1.ConfigMap) error { m.Annotations = nil; return nil }, []string{"write"}},
				{"7", "6", func(m *corev1.ConfigMap) error { m.Annotations = nil; return nil }, nil},
			}
			from := configMap("a")
			for _, s := range steps {
				before := len(verbs(api))
				if err := write(maps, from, s.mutate, s.digit); err != nil {
					t.Fatal(s.digit, err)
				}
				var sent []string
				for _, v := range verbs(api)[before:] {
					switch v {
					case "update", "patch":
						v = "write"
					case "get":
						continue
					}
					sent = append(sent, v)
				}
				if !slices.Equal(sent, s.verbs) {
					t.Errorf("%s: sent %v, want %v", s.digit, sent, s.verbs)
				}
				now, err := maps.GetLive(t.Context(), name("default", "a"))
				if err != nil {
					t.Fatal(err)
				}
				if traceOf(now) != s.want {
					t.Errorf("%s: the trace is %q, want %q", s.digit, traceOf(now), s.want)
				}
				from = now
			}
		})
	}
}

// TestTraceParent_NotInTheCallersObject: neither a typed nor an unstructured object is changed.
func TestTraceParent_NotInTheCallersObject(t *testing.T) {
	api, maps := traceConfigMaps(t)
	given := configMap("a")
	given.Annotations = map[string]string{"x": "y"}
	if _, err := maps.Create(t.Context(), given, client.TraceParent(trace("1"))); err != nil || len(given.Annotations) != 1 {
		t.Error(given.Annotations, err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	u.SetNamespace("default")
	u.SetName("b")
	u.SetAnnotations(map[string]string{"x": "y"})
	h := client.ForKind[*unstructured.Unstructured](newClient(t, api, client.Options{}), u.GroupVersionKind())
	if stored, err := h.Create(t.Context(), u, client.TraceParent(trace("1"))); err != nil || len(u.GetAnnotations()) != 1 || traceOf(stored) != "1" {
		t.Error(u.GetAnnotations(), stored, err)
	}
}

// TestTraceParent_IsNotForStatus: of two requests only the one for more than the status has it.
func TestTraceParent_IsNotForStatus(t *testing.T) {
	a := newApplying(t)
	_, _, err := client.CreateOrPatch(t.Context(), a.deployments, web(), func(d *appsv1.Deployment) error {
		d.Status.ObservedGeneration = 1
		return nil
	}, client.TraceParent(trace("1")))
	if now := a.live(); err != nil || traceOf(now) != "1" || now.Status.ObservedGeneration != 1 {
		t.Errorf("created %+v: %v", now, err)
	}
	fresh := web()
	fresh.Name = "fresh"
	a.api.Put(sim.Deployments, fresh)
	a.name = "fresh"
	for _, spec := range []bool{false, true} {
		before := a.live()
		after := before.DeepCopy()
		after.Status.ObservedGeneration++
		if spec {
			after.Spec.Paused = true
		}
		if _, err := client.PatchFrom(t.Context(), a.deployments, before, after, client.TraceParent(trace("1"))); err != nil {
			t.Fatal(err)
		}
		now := a.live()
		if traced := traceOf(now) != ""; traced != spec || now.Status.ObservedGeneration != after.Status.ObservedGeneration {
			t.Errorf("with a change of the spec %t: traced %t, status %+v", spec, traced, now.Status)
		}
	}
}

// TestTraceParent_IsRefused: calls that cannot tell a change from a no-op send nothing.
func TestTraceParent_IsRefused(t *testing.T) {
	api, maps := traceConfigMaps(t)
	m, ctx := configMap("a"), t.Context()
	a := newApplying(t)
	for what, c := range map[string]struct {
		call func(client.Option) error
		with string
		want string
	}{
		"update": {func(o client.Option) error { _, err := maps.Update(ctx, m, o); return err }, "", "does not take client.TraceParent"},
		"patch": {func(o client.Option) error {
			_, err := maps.Patch(ctx, name("default", "a"), types.MergePatchType, []byte("{}"), o)
			return err
		}, "", "does not take client.TraceParent"},
		"apply": {func(o client.Option) error { _, err := a.deployments.Apply(ctx, replicas(1), o); return err }, "", "needs client.UnlessAlready"},
		"status": {func(o client.Option) error {
			_, err := a.deployments.ApplyStatus(ctx, replicas(1), client.UnlessAlready(nil), o)
			return err
		}, "", "not for subresources"},
		"format":            {func(o client.Option) error { _, err := maps.Create(ctx, m, o); return err }, "00-1-2-01", "W3C"},
		"format, PatchFrom": {func(o client.Option) error { _, err := client.PatchFrom(ctx, maps, m, m, o); return err }, "x", "W3C"},
		"format, CreateOrUpdate": {func(o client.Option) error {
			_, _, err := client.CreateOrUpdate(ctx, maps, m, fill, o)
			return err
		}, "x", "W3C"},
	} {
		value := c.with
		if value == "" {
			value = trace("1")
		}
		if err := c.call(client.TraceParent(value)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
	for _, v := range append(verbs(api), verbs(a.api)...) {
		t.Errorf("a %s was sent", v)
	}
}
