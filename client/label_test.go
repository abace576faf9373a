// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/slotlabel"
)

// slotKey is the label of these tests. Its value is the kind and the key of the controller, and all
// keys are in slot 7 but those with the name elsewhere.
const slotKey = "slot.setpoint.dev/test"

func inSlot7(ctx context.Context) context.Context {
	var last types.NamespacedName
	return slotlabel.With(ctx, &slotlabel.Label{
		Key: slotKey,
		Slot: func(key types.NamespacedName) (uint8, error) {
			if last = key; key.Name == "elsewhere" {
				return 8, nil
			}
			return 7, nil
		},
		Value: func(owner schema.GroupKind, slot uint8) string {
			return fmt.Sprintf("%s.%s.%s.%d", owner.Kind, last.Namespace, last.Name, slot)
		},
	}, 7)
}

// labeling writes ConfigMaps whose controllers are Deployments and Namespaces.
type labeling struct {
	t    *testing.T
	api  *sim.Server
	maps *client.Handle[*corev1.ConfigMap]
}

func newLabeling(t *testing.T) *labeling {
	api := sim.NewServer(sim.ConfigMaps, sim.Deployments, sim.Namespaces)
	for _, owner := range []string{"web", "elsewhere"} {
		d := web()
		d.Name, d.UID = owner, "1"
		api.Put(sim.Deployments, d)
	}
	api.Put(sim.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "1"}})
	c := newClient(t, api, client.Options{FieldOwner: "test"})
	return &labeling{t, api, client.For[*corev1.ConfigMap](c)}
}

func (l *labeling) context() context.Context { return inSlot7(l.t.Context()) }

func controlledBy(m *corev1.ConfigMap, apiVersion, kind, name string) *corev1.ConfigMap {
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "1", Controller: new(true)}}
	return m
}

func child() *corev1.ConfigMap { return controlledBy(configMap("a"), "apps/v1", "Deployment", "web") }

func childConfiguration() *coreac.ConfigMapApplyConfiguration {
	return coreac.ConfigMap("a", "default").WithData(map[string]string{"a": "b"}).WithLabels(map[string]string{"x": "y"}).WithOwnerReferences(
		metaac.OwnerReference().WithAPIVersion("apps/v1").WithKind("Deployment").WithName("web").WithUID("1").WithController(true))
}

const ofWeb = "Deployment.default.web.7"

// want checks the stored label; "" is none.
func (l *labeling) want(when, value string) *corev1.ConfigMap {
	l.t.Helper()
	m, err := l.maps.GetLive(l.context(), name("default", "a"))
	if err != nil {
		l.t.Fatal(err)
	}
	if got := m.Labels[slotKey]; got != value {
		l.t.Errorf("%s: the label is %q, want %q", when, got, value)
	}
	return m
}

func (l *labeling) ok(_ *corev1.ConfigMap, err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// TestP8_OnlyChildrenOfTheSlotAreLabelled: the slot of the context counts, by the controller.
func TestP8_OnlyChildrenOfTheSlotAreLabelled(t *testing.T) {
	for what, c := range map[string]struct {
		obj  *corev1.ConfigMap
		want string
	}{
		"a child":                      {child(), ofWeb},
		"no controller":                {configMap("a"), ""},
		"of another slot":              {controlledBy(configMap("a"), "apps/v1", "Deployment", "elsewhere"), ""},
		"a cluster-scoped controller":  {controlledBy(configMap("a"), "v1", "Namespace", "default"), "Namespace..default.7"},
		"a controller of unknown kind": {controlledBy(configMap("a"), "unknown.dev/v1", "Site", "web"), ""},
	} {
		l := newLabeling(t)
		l.ok(l.maps.Create(l.context(), c.obj))
		l.want(what, c.want)
		if c.obj.Labels != nil {
			t.Errorf("%s: the argument has the labels %v", what, c.obj.Labels)
		}
	}
	l := newLabeling(t)
	l.ok(l.maps.Create(t.Context(), child()))
	l.want("outside of a sharded Reconcile", "")
}

func TestLabel_CreateUnstructured(t *testing.T) {
	l := newLabeling(t)
	c := newClient(t, l.api, client.Options{})
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	u.SetName("a")
	u.SetNamespace("default")
	u.SetOwnerReferences(child().OwnerReferences)
	if _, err := client.ForKind[*unstructured.Unstructured](c, u.GroupVersionKind()).Create(l.context(), u); err != nil {
		t.Fatal(err)
	}
	l.want("unstructured", ofWeb)
	if u.GetLabels() != nil {
		t.Errorf("the argument has the labels %v", u.GetLabels())
	}
}

// TestP8_AWrongLabelIsSetRight adds a missing label, and corrects a wrong one also for another
// slot: a wrong one would hide the object from its owner.
func TestP8_AWrongLabelIsSetRight(t *testing.T) {
	l := newLabeling(t)
	l.ok(l.maps.Create(t.Context(), child()))
	m := l.want("before", "")
	l.ok(l.maps.Update(l.context(), m))
	m = l.want("updated", ofWeb)
	l.ok(l.maps.Update(l.context(), controlledBy(m, "apps/v1", "Deployment", "elsewhere")))
	m = l.want("given to a key of another slot", "Deployment.default.elsewhere.8")
	m.OwnerReferences = nil
	l.ok(l.maps.Update(l.context(), m))
	l.want("without a controller", "")
}

// TestP8_AnApplyOwnsTheLabel: the field owner owns the label, so the next apply sets a hand edit
// back, also with UnlessAlready.
func TestP8_AnApplyOwnsTheLabel(t *testing.T) {
	l := newLabeling(t)
	l.ok(l.maps.Apply(l.context(), childConfiguration(), client.UnlessAlready(nil)))
	m := l.want("applied", ofWeb)
	if m.Labels["x"] != "y" || m.Data["a"] != "b" {
		t.Errorf("the other fields are %v and %v", m.Labels, m.Data)
	}
	if len(m.ManagedFields) != 1 || m.ManagedFields[0].Manager != "test" {
		t.Errorf("the managed fields are %v", m.ManagedFields)
	}
	n := l.api.Count("apply", sim.ConfigMaps)
	l.ok(l.maps.Apply(l.context(), childConfiguration(), client.UnlessAlready(m)))
	if l.api.Count("apply", sim.ConfigMaps) != n {
		t.Error("an apply of the same was sent")
	}
	l.ok(l.maps.Patch(t.Context(), name("default", "a"), types.MergePatchType, []byte(`{"metadata":{"labels":{"`+slotKey+`":"hand"}}}`)))
	l.ok(l.maps.Apply(l.context(), childConfiguration(), client.UnlessAlready(l.want("edited", "hand"))))
	l.want("applied again", ofWeb)
}

// TestLabel_AnApplyWithoutTheController leaves the label: another field owner may apply both.
func TestLabel_AnApplyWithoutTheController(t *testing.T) {
	l := newLabeling(t)
	l.ok(l.maps.Apply(l.context(), childConfiguration()))
	l.ok(l.maps.Apply(l.context(), coreac.ConfigMap("a", "default").WithData(map[string]string{"c": "d"}), client.FieldOwner("other")))
	l.want("by another field owner", ofWeb)
}

// TestLabel_CreateAgain: the error is the same, but a label that hides the object is set back.
func TestLabel_CreateAgain(t *testing.T) {
	l := newLabeling(t)
	l.ok(l.maps.Create(l.context(), child()))
	l.ok(l.maps.Patch(t.Context(), name("default", "a"), types.MergePatchType, []byte(`{"metadata":{"labels":{"`+slotKey+`":"hand"}}}`)))
	l.want("edited", "hand")
	if _, err := l.maps.Create(t.Context(), child()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("outside of a sharded Reconcile: %v", err)
	}
	l.want("created outside of a sharded Reconcile", "hand")
	if _, err := l.maps.Create(l.context(), child()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v", err)
	}
	l.want("created again", ofWeb)
}

// TestLabel_ExistingChildren get the label although the caller's function changes nothing. The next
// call sends nothing.
func TestLabel_ExistingChildren(t *testing.T) {
	nothing := func(*corev1.ConfigMap) error { return nil }
	for what, change := range map[string]func(*labeling, *corev1.ConfigMap) error{
		"CreateOrUpdate": func(l *labeling, m *corev1.ConfigMap) error {
			_, _, err := client.CreateOrUpdate(l.context(), l.maps, m, nothing)
			return err
		},
		"CreateOrPatch": func(l *labeling, m *corev1.ConfigMap) error {
			_, _, err := client.CreateOrPatch(l.context(), l.maps, m, nothing)
			return err
		},
		"PatchFrom": func(l *labeling, m *corev1.ConfigMap) error {
			_, err := client.PatchFrom(l.context(), l.maps, m, m)
			return err
		},
	} {
		l := newLabeling(t)
		l.ok(l.maps.Create(t.Context(), child()))
		if err := change(l, l.want("before", "")); err != nil {
			t.Fatal(err)
		}
		m := l.want(what, ofWeb)
		n := len(l.api.Requests())
		if err := change(l, m); err != nil {
			t.Fatal(err)
		}
		if len(l.api.Requests()) != n {
			t.Errorf("%s has sent something for a labelled object", what)
		}
	}
}
