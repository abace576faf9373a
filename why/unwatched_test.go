// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/why"
)

// TestFor_Unwatched: with values, the API server is asked for an object whose kind no controller
// watches, and its owner is explained. Without, no request is sent.
func TestFor_Unwatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Serve(sim.Pods)
		w.start()
		w.put(site())
		m, err := w.maps.Get(t.Context(), web.Key())
		testkit.NoError(t, err)
		pod := func(name string, owners ...metav1.OwnerReference) {
			w.api.Put(sim.Pods, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: owners, Annotations: map[string]string{"a": "confidential"}},
			})
		}
		pod("owned", *metav1.NewControllerRef(m, corev1.SchemeGroupVersion.WithKind("ConfigMap")))
		pod("alone")
		for _, c := range []struct {
			o    why.Object
			says string
		}{
			{why.Object{Kind: "pod", Namespace: "default", Name: "owned", Values: true}, `no controller of this process watches the kind "pod"; its controlling owner is ConfigMap default/web`},
			{why.Object{Kind: "pods", Namespace: "default", Name: "alone", Values: true}, "; the object has no controlling owner"},
			{why.Object{Kind: "Pod.v1", Namespace: "default", Name: "absent", Values: true}, ", and the API server has no such object"},
			{why.Object{Kind: "wodget", Namespace: "default", Name: "x", Values: true}, `the scheme has no kind "wodget"; write it with its version and group`},
			{why.Object{Kind: "pod", Namespace: "default", Name: "owned"}, `no controller of this process watches the kind "pod"` + "\n"},
		} {
			before := len(w.api.Requests())
			text := why.For(t.Context(), c.o, w.mgr).String()
			testkit.Contains(t, text, c.says, c.o)
			testkit.NotContains(t, text, "confidential", c.o)
			testkit.Equal(t, strings.Contains(text, "site default/web: the last Reconcile"), c.o.Name == "owned" && c.o.Values, c.o, "the owner's answer", text)
			if sent := len(w.api.Requests()) - before; !c.o.Values && sent > 0 {
				t.Errorf("%s: %d requests without values", c.o, sent)
			}
		}
	})
}
