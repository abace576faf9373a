// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// merged applies a JSON merge patch (RFC 7396).
func merged(object, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	result := map[string]any{}
	if fields, ok := object.(map[string]any); ok {
		for field, value := range fields {
			result[field] = value
		}
	}
	for field, change := range changes {
		if change == nil {
			delete(result, field)
		} else {
			result[field] = merged(result[field], change)
		}
	}
	return result
}

// bare returns a value without nulls in objects, which a merge patch cannot express.
func bare(value any) any {
	fields, ok := value.(map[string]any)
	if !ok {
		return value
	}
	result := map[string]any{}
	for field, v := range fields {
		if v != nil {
			result[field] = bare(v)
		}
	}
	return result
}

// FuzzMergePatch: the patch from one object to another, applied to the one, results in the other.
func FuzzMergePatch(f *testing.F) {
	for _, seed := range [][2]string{
		{`{}`, `{}`},
		{`{"a":1,"b":{"c":[1,2]}}`, `{"a":1,"b":{"c":[1]}}`},
		{`{"a":{"b":{"c":1}}}`, `{"a":{"b":{}}}`},
		{`{"a":{"b":1},"d":null}`, `{"a":[{"b":null}]}`},
		{`{"a":1}`, `{"a":null,"b":{"c":null}}`},
		{`{"a":"x"}`, `{"a":{"b":{}}}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, from, to string) {
		var was, is map[string]any
		if json.Unmarshal([]byte(from), &was) != nil || json.Unmarshal([]byte(to), &is) != nil || was == nil || is == nil {
			t.Skip()
		}
		patch := mergePatch(was, is)
		testkit.DeepEqual(t, bare(merged(was, patch)), bare(is), fmt.Sprintf("from %s to %s", from, to), fmt.Sprintf("the patch is %v, which results in", patch))
		if reflect.DeepEqual(was, is) && len(patch) != 0 {
			t.Errorf("%s: the patch to the same is %v", from, patch)
		}
	})
}

func patchTo[T Object](t *testing.T, before, after T) difference {
	t.Helper()
	d, err := compare(before, after)
	testkit.NoError(t, err)
	return d
}

// TestCompare_DuplicateKeys: a strategic merge patch would lose a port, and change another one.
func TestCompare_DuplicateKeys(t *testing.T) {
	one := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "a", Port: 53, Protocol: corev1.ProtocolTCP}}}}
	two := one.DeepCopy()
	two.Spec.Ports = append(two.Spec.Ports, corev1.ServicePort{Name: "b", Port: 53, Protocol: corev1.ProtocolUDP})
	renamed := two.DeepCopy()
	renamed.Spec.Ports[1].Name = "c"
	moved := one.DeepCopy()
	moved.Spec.Ports[0].Port = 54
	for what, tt := range map[string]struct {
		before, after *corev1.Service
		want          types.PatchType
	}{
		"added": {one, two, types.MergePatchType}, "removed": {two, one, types.MergePatchType},
		"renamed": {two, renamed, types.MergePatchType}, "moved": {one, moved, types.StrategicMergePatchType},
	} {
		d := patchTo(t, tt.before, tt.after)
		testkit.Equal(t, d.patchType, tt.want, what)
		testkit.NotEqual(t, len(d.main), 0, what)
		testkit.Len(t, d.status, 0, what)
	}
}

// TestCompare_Strategic: usual changes of built-in objects are strategic.
func TestCompare_Strategic(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"x/a", "x/b"}, Labels: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "a", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}, {Name: "b", Image: "i"}},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: "A", Status: "True"}}},
	}
	for what, change := range map[string]func(*corev1.Pod){
		"finalizers": func(p *corev1.Pod) { p.Finalizers = []string{"x/b", "x/c"} },
		"none":       func(p *corev1.Pod) { p.Finalizers, p.Labels = nil, map[string]string{} },
		"containers": func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[1:] },
		"order":      func(p *corev1.Pod) { slices.Reverse(p.Spec.Containers) },
		"env":        func(p *corev1.Pod) { p.Spec.Containers[0].Env = nil },
		"volumes": func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}
		},
		"conditions": func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "B", Status: "False"})
		},
	} {
		after := pod.DeepCopy()
		change(after)
		for _, d := range []difference{patchTo(t, pod, after), patchTo(t, after, pod)} {
			testkit.Equal(t, d.patchType, types.StrategicMergePatchType, what)
			testkit.NotEqual(t, len(d.main)+len(d.status), 0, what)
		}
	}
}

// TestCompare_Replaces: a patch that replaces a list as a whole is found also if the object had no
// such list, if the list is in an element of another, and if its elements look like directives.
func TestCompare_Replaces(t *testing.T) {
	policy, service, pod := &netv1.NetworkPolicy{}, &corev1.Service{}, &corev1.Pod{}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "i", Args: []string{"x"}}}
	kustomization := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"patches": []any{}, "$list": []any{}}}}
	set := func(field string, value ...any) func() Object {
		return func() Object {
			u := kustomization.DeepCopy()
			_ = unstructured.SetNestedSlice(u.Object, value, "spec", field)
			return u
		}
	}
	change := func(f func(*corev1.Pod)) func() Object {
		return func() Object { p := pod.DeepCopy(); f(p); return p }
	}
	for what, tt := range map[string]struct {
		before Object
		after  func() Object
		want   string
	}{
		"no list before": {policy, func() Object {
			p := policy.DeepCopy()
			p.Spec.Ingress = []netv1.NetworkPolicyIngressRule{{}}
			return p
		}, "spec.ingress"},
		"of strings": {service, func() Object {
			s := service.DeepCopy()
			s.Spec.ExternalIPs = []string{"192.0.2.1"}
			return s
		}, "spec.externalIPs"},
		"with a merge key, none before": {service, func() Object {
			s := service.DeepCopy()
			s.Spec.Ports = []corev1.ServicePort{{Port: 1}}
			return s
		}, ""},
		"args":           {pod, change(func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"x", "y"} }), "spec.containers.args"},
		"args removed":   {pod, change(func(p *corev1.Pod) { p.Spec.Containers[0].Args = nil }), "spec.containers.args"},
		"image":          {pod, change(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "j" }), ""},
		"a container":    {pod, change(func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b"}) }), ""},
		"no container":   {pod, change(func(p *corev1.Pod) { p.Spec.Containers = nil }), ""},
		"finalizers":     {pod, change(func(p *corev1.Pod) { p.Finalizers = []string{"x/a"} }), ""},
		"labels":         {pod, change(func(p *corev1.Pod) { p.Labels = map[string]string{"$a": "b"} }), ""},
		"like directive": {kustomization, set("patches", map[string]any{"$patch": "delete"}), "spec.patches"},
		"named $":        {kustomization, set("$list", "a"), "spec.$list"},
	} {
		d, err := compare(tt.before, tt.after())
		testkit.NoError(t, err, what)
		testkit.Equal(t, d.replaces, tt.want, what)
		testkit.NotEqual(t, len(d.main), 0, what)
	}
}

// TestCompare_OnlyChanged: the patch is the same as when all fields are encoded, and the objects
// stay as they are.
func TestCompare_OnlyChanged(t *testing.T) {
	before := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Labels: map[string]string{"a": "b", "c": "d"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n", Containers: []corev1.Container{{Name: "a"}}, Tolerations: []corev1.Toleration{{Key: "k"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: "A"}}},
	}
	for what, change := range map[string]func(*corev1.Pod){
		"labels":    func(p *corev1.Pod) { p.Labels = map[string]string{"a": "c"} },
		"no labels": func(p *corev1.Pod) { p.Labels = nil },
		"finalizer": func(p *corev1.Pod) { p.Finalizers = []string{"x/y"} },
		"spec":      func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.Tolerations = "", []corev1.Toleration{} },
		"node":      func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.NodeSelector = "x", map[string]string{"a": "b"} },
		"status":    func(p *corev1.Pod) { p.Status.Conditions[0].Status = "True" },
		"both":      func(p *corev1.Pod) { p.Annotations, p.Status.Phase = map[string]string{"a": "b"}, "" },
	} {
		after := before.DeepCopy()
		change(after)
		one, other := before.DeepCopy(), after.DeepCopy()
		d := patchTo(t, one, other)
		testkit.DeepEqual(t, one, before, what, "an object was changed")
		testkit.DeepEqual(t, other, after, what, "an object was changed")
		was, wasStatus, _ := content(before)
		is, isStatus, _ := content(after)
		main, err := strategicpatch.CreateTwoWayMergeMapPatch(was, withEmptyLists(is, was), before)
		status, failed := strategicpatch.CreateTwoWayMergeMapPatch(wasStatus, withEmptyLists(isStatus, wasStatus), before)
		if err != nil || failed != nil || len(main)+len(status) == 0 || !equalPatches(d.main, main) || !equalPatches(d.status, status) {
			t.Errorf("%s: the patch is %v, %v; of the whole objects %v, %v", what, d.main, d.status, main, status)
		}
	}
}

func equalPatches(a map[string]any, b strategicpatch.JSONMap) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, map[string]any(b))
}

// TestCompare_RetainKeys: a strategy's fields that do not belong to its new type are removed.
func TestCompare_RetainKeys(t *testing.T) {
	rolling := appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{}}
	before := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Strategy: rolling}}
	after := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}}}
	for _, pair := range [][2]*appsv1.Deployment{{before, after}, {after, before}} {
		d := patchTo(t, pair[0], pair[1])
		was, _, _ := content(pair[0])
		is, _, _ := content(pair[1])
		got, err := strategicpatch.StrategicMergeMapPatch(was, d.main, pair[0])
		testkit.NoError(t, err, d.main)
		testkit.Equal(t, d.patchType, types.StrategicMergePatchType, d.main)
		testkit.DeepEqual(t, withoutNulls(map[string]any(got)), withoutNulls(is), d.main)
	}
}

// TestCompare_NotOnlyStrings: these maps are not merged key by key, or have keys that look like
// directives, or values that are null.
func TestCompare_NotOnlyStrings(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "a"}},
	}}
	moved := budget.DeepCopy()
	moved.Spec.Selector.MatchLabels["tier"] = "b"
	d := patchTo(t, budget, moved)
	was, _, _ := content(budget)
	is, _, _ := content(moved)
	got, err := strategicpatch.StrategicMergeMapPatch(was, d.main, budget)
	testkit.NoError(t, err)
	testkit.DeepEqual(t, map[string]any(got)["spec"], is["spec"])

	one := &corev1.ConfigMap{Data: map[string]string{"a": "1"}}
	directive := one.DeepCopy()
	directive.Data["$patch"] = "delete"
	testkit.Equal(t, patchTo(t, one, directive).patchType, types.MergePatchType)

	secret := &corev1.Secret{Data: map[string][]byte{"a": nil, "b": []byte("x")}}
	without := secret.DeepCopy()
	delete(without.Data, "a")
	testkit.NotEqual(t, len(patchTo(t, secret, without).main), 0, "a key without a value is not removed")
}

// mode has no zero value in JSON.
type mode int

func (m mode) MarshalJSON() ([]byte, error) {
	if m == 0 {
		return nil, errors.New("no mode")
	}
	return []byte(`"m"`), nil
}

type base struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

// odd has its metadata behind a pointer.
type odd struct {
	*base `json:",inline"`

	Mode mode `json:"mode"`
}

func (o *odd) DeepCopyObject() runtime.Object {
	b := &base{TypeMeta: o.TypeMeta}
	o.DeepCopyInto(&b.ObjectMeta)
	return &odd{b, o.Mode}
}

func TestCompare_OddTypes(t *testing.T) {
	before := &odd{&base{}, 1}
	before.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	after, _ := before.DeepCopyObject().(*odd)
	after.Labels = map[string]string{"a": "b"}
	if d := patchTo(t, before, after); len(d.main) != 1 || before.ManagedFields == nil || after.ManagedFields == nil {
		t.Errorf("the patch is %v, of %v and %v", d.main, before.ObjectMeta, after.ObjectMeta)
	}
}
