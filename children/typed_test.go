// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func meta() metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: "web"} }

func labels() map[string]string { return map[string]string{"app": "web"} }

func template(restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels()},
		Spec:       corev1.PodSpec{RestartPolicy: restart, Containers: []corev1.Container{{Name: "web", Image: "web:1", Env: []corev1.EnvVar{{Name: "EMPTY"}}}}},
	}
}

func deployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: meta(), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels()}, Template: template(""),
	}}
}

// withKind returns obj with its kind, as a Typed for the client needs it.
func withKind(t *testing.T, obj client.Object) client.Object {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	testkit.NoError(t, err)
	obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	return obj
}

// TestTyped_SendsOnlyWhatIsSet: nothing of the Go type reaches the API server that is not set, and
// a zero that is set stays.
func TestTyped_SendsOnlyWhatIsSet(t *testing.T) {
	for _, c := range []struct {
		of   client.Object
		want string
	}{
		{deployment(), `{"metadata":{"name":"web","namespace":"default"},"spec":{"selector":{"matchLabels":{"app":"web"}},` +
			`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"env":[{"name":"EMPTY"}],"image":"web:1","name":"web"}]}}}}`},
		{&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 3, CreationTimestamp: metav1.Now(), DeletionTimestamp: new(metav1.Now()),
			DeletionGracePeriodSeconds: new(int64(3))}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(0))}, Status: appsv1.DeploymentStatus{Replicas: 3}},
			`{"metadata":{"name":"web"},"spec":{"replicas":0,"template":{}}}`},
		{&corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, `{"spec":{"ports":[{"port":80}]}}`},
		{&corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}}}},
			`{"spec":{"ports":[{"port":80,"targetPort":"http"}]}}`},
		{&corev1.ConfigMap{Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"b": {1}}}, `{"binaryData":{"b":"AQ=="},"data":{"a":""}}`},
		{&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}},
			`{"spec":{"ingress":[{}],"podSelector":{}}}`}, // all Pods, from all
		{&policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(0))}}, `{"spec":{"maxUnavailable":0}}`},
		{&corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{}, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}},
			`{"spec":{"containers":null,"securityContext":{},"volumes":[{"emptyDir":{},"name":"v"}]}}`},
		{&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("0")}}}}}},
			`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"0"}}}]}}`},
		{&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}}}}}},
			`{"spec":{"containers":[{"name":"a"}]}}`},
		{&rbacv1.Role{}, `{}`},
		{&rbacv1.Role{Rules: []rbacv1.PolicyRule{}}, `{"rules":[]}`},
		{&Gadget{Spec: GadgetSpec{Base: Base{Size: math.MaxInt64}, Enabled: true, Parts: map[string]Part{"p": {Weight: 1}}, Raw: &runtime.RawExtension{Raw: []byte(`{"a":null}`)}, Own: Own{Color: "red"}}},
			`{"spec":{"enabled":true,"own":{"mixed":false},"parts":{"p":{"weight":1}},"raw":{"a":null},"size":9223372036854775807}}`},
	} {
		data, err := json.Marshal(children.Typed(c.of))
		want := strings.ReplaceAll(c.want, `"containers":null,`, "")
		testkit.NoError(t, err, want)
		testkit.Equal(t, string(data), want)
	}
}

// Gadget is a type of a user.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GadgetSpec   `json:"spec"`
	Status GadgetStatus `json:"status"`
}

// GadgetSpec has a field of each sort.
type GadgetSpec struct {
	Base  `json:",inline"`
	*More `json:",inline"`

	Enabled bool                  `json:"enabled"`
	Ratio   float64               `json:"ratio,omitzero"`
	Limit   Limit                 `json:"limit,omitzero"`
	Parts   map[string]Part       `json:"parts"`
	Any     any                   `json:"any"`
	Hours   []*Part               `json:"hours"`
	Pair    [2]Part               `json:"pair,omitzero"`
	Every   *Part                 `json:"every,omitempty"`
	Raw     *runtime.RawExtension `json:"raw"`
	When    metav1.Time           `json:"when,omitempty"`
	Memory  resource.Quantity     `json:"memory,omitempty"`
	Hidden  int                   `json:"-"`
	Own     Own                   `json:"own,omitempty"`

	enabled int // JSON does not have it
}

type (
	// Base is inline.
	Base struct {
		Size int64 `json:"size"`
	}
	// More is inline and may be nil.
	More struct {
		Extra string `json:"extra"`
	}
	// Limit has a field that JSON always has.
	Limit struct {
		Most int         `json:"most"`
		By   metav1.Time `json:"by,omitempty"`
		Addr netip.Addr  `json:"addr"`
		Free int
	}
	// Part is an element.
	Part struct {
		Weight int32 `json:"weight"`
	}
	// Own encodes itself.
	Own struct {
		Color string
		Mixed bool `json:"mixed"`
	}
	// GadgetStatus is not sent.
	GadgetStatus struct {
		Phase string `json:"phase"`
	}
)

// MarshalJSON implements json.Marshaler.
func (o *Own) MarshalJSON() ([]byte, error) { return []byte(`{"mixed":false}`), nil }

// DeepCopyObject implements runtime.Object.
func (g *Gadget) DeepCopyObject() runtime.Object { c := *g; return &c }

// TestTyped_NamesUndecidedFields: a zero field that JSON always has is refused with its path. One
// error has all of them.
func TestTyped_NamesUndecidedFields(t *testing.T) {
	const more = "; use an apply configuration, or set each field or make it a pointer or omitempty"
	for name, c := range map[string]struct {
		of   client.Object
		want []string
	}{
		"a spec of zeros": {&Gadget{}, []string{"Typed: JSON cannot leave out the zero of .spec.size, .spec.enabled", more}},
		"one field":       {&Gadget{Spec: GadgetSpec{Base: Base{1}}}, []string{"Typed: JSON cannot leave out the zero of .spec.enabled", more}},
		"all of a value": {&Gadget{Spec: GadgetSpec{
			More: &More{}, Limit: Limit{By: metav1.Now()}, Parts: map[string]Part{"p": {}}, Any: Part{}, Hours: []*Part{nil, {}}, Pair: [2]Part{{1}, {}},
			Every: &Part{}, Hidden: 1, enabled: 1,
		}}, []string{"Typed: JSON cannot leave out the zero of .spec.size, .spec.extra, .spec.enabled, .spec.limit.most, .spec.limit.addr, .spec.limit.Free, .spec.parts[p].weight, .spec.any.weight, " +
			".spec.hours[1].weight, .spec.pair[1].weight, .spec.every.weight"}},
		"a container": {&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}, []string{".spec.containers[0].name"}},
		"a port":      {&corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "a"}}}}, []string{".spec.ports[0].port"}},
		"a value that encodes itself": {&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a",
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/"}}}}}}}, []string{".spec.containers[0].livenessProbe.httpGet.port"}},
		"a binding":                      {&rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "a"}}, []string{".roleRef.apiGroup"}},
		"a value of which zero is usual": {&schedulingv1.PriorityClass{}, []string{".value"}},
	} {
		refused(t, name, c.of, c.want...)
	}
}

func refused(t *testing.T, name string, obj client.Object, want ...string) {
	t.Helper()
	_, err := json.Marshal(children.Typed(obj))
	if err == nil {
		t.Errorf("%s: no error, want %q", name, want)
		return
	}
	for _, w := range want {
		testkit.ErrorContains(t, err, w, name, fmt.Sprintf("lacks %q", w))
	}
}

// TestTyped_RefusesWhatItCannotApply: objects that were read, that encode themselves, or that are
// nil.
func TestTyped_RefusesWhatItCannotApply(t *testing.T) {
	const read = "give only the fields to apply, not an object that was read"
	for name, m := range map[string]metav1.ObjectMeta{
		"resourceVersion": {ResourceVersion: "1"}, "uid": {UID: "u"}, "managedFields": {ManagedFields: []metav1.ManagedFieldsEntry{{}}},
	} {
		refused(t, name, &corev1.ConfigMap{ObjectMeta: m}, read)
	}
	refused(t, "unstructured", &unstructured.Unstructured{}, "a *unstructured.Unstructured encodes itself", "client.UnstructuredConfiguration")
	refused(t, "a type with a MarshalJSON", &opaque{}, "a *children_test.opaque encodes itself")
	refused(t, "a value that does not encode", &Gadget{Spec: GadgetSpec{Any: make(chan int)}}, "Typed: json: unsupported type: chan int")
	refused(t, "nil", nil, "the object is nil")
	refused(t, "a nil pointer", (*corev1.ConfigMap)(nil), "the object is nil")
	if c := children.Typed(nil); c.GetName() != nil || c.GetNamespace() != nil {
		t.Error("nil has a name")
	}
}

type opaque struct{ corev1.ConfigMap }

func (*opaque) MarshalJSON() ([]byte, error) { return []byte(`{}`), nil }

// TestTyped_HasTheNameAndKindOfTheObject: the kind is unknown if the object does not have it.
func TestTyped_HasTheNameAndKindOfTheObject(t *testing.T) {
	type config interface {
		client.ApplyConfiguration
		GetKind() *string
		GetAPIVersion() *string
	}
	c := children.Typed(deployment()).(config)
	if *c.GetName() != "web" || *c.GetNamespace() != "default" || c.GetKind() != nil || c.GetAPIVersion() != nil {
		t.Errorf("%+v", c)
	}
	c = children.Typed(withKind(t, deployment())).(config)
	testkit.Equal(t, *c.GetKind(), "Deployment")
	testkit.Equal(t, *c.GetAPIVersion(), "apps/v1")
}

// applied applies obj twice. The API server accepts it without an unknown field, and the second
// apply is a no-op.
func applied[T client.Object](c *client.Client, obj T) func(t *testing.T) {
	return func(t *testing.T) {
		withKind(t, obj)
		h := client.For[T](c)
		first, err := h.Apply(t.Context(), children.Typed(obj))
		testkit.NoError(t, err)
		second, err := h.Apply(t.Context(), children.Typed(obj))
		testkit.NoError(t, err)
		testkit.Equal(t, second.GetResourceVersion(), first.GetResourceVersion())
	}
}

func newClient(t *testing.T) *client.Client {
	t.Helper()
	api := sim.New(t, scheme.Scheme)
	c, err := client.New(api.Config(), client.Options{FieldOwner: "test", FieldValidation: metav1.FieldValidationStrict})
	testkit.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestTyped_AppliesBuiltInKinds: minimal objects of many kinds are valid as they are sent.
func TestTyped_AppliesBuiltInKinds(t *testing.T) {
	c := newClient(t)
	selector := &metav1.LabelSelector{MatchLabels: labels()}
	job := batchv1.JobSpec{Template: template(corev1.RestartPolicyNever)}
	prefix := networkingv1.PathTypePrefix
	for name, test := range map[string]func(*testing.T){
		"Deployment": applied(c, deployment()),
		"StatefulSet": applied(c, &appsv1.StatefulSet{ObjectMeta: meta(), Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template(""), ServiceName: "web",
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claim()}}}}),
		"DaemonSet": applied(c, &appsv1.DaemonSet{ObjectMeta: meta(), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template("")}}),
		"Service":   applied(c, &corev1.Service{ObjectMeta: meta(), Spec: corev1.ServiceSpec{Selector: labels(), Ports: []corev1.ServicePort{{Port: 80}}}}),
		"ConfigMap": applied(c, &corev1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"a": ""}}),
		"Secret":    applied(c, &corev1.Secret{ObjectMeta: meta(), Data: map[string][]byte{"a": []byte("b")}}),
		"Ingress": applied(c, &networkingv1.Ingress{ObjectMeta: meta(), Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "a.test",
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix,
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}}}}}}}),
		"NetworkPolicy":       applied(c, &networkingv1.NetworkPolicy{ObjectMeta: meta(), Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}}),
		"PodDisruptionBudget": applied(c, &policyv1.PodDisruptionBudget{ObjectMeta: meta(), Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, MinAvailable: new(intstr.FromInt32(1))}}),
		"HorizontalPodAutoscaler": applied(c, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta(), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}}),
		"Job":                   applied(c, &batchv1.Job{ObjectMeta: meta(), Spec: job}),
		"CronJob":               applied(c, &batchv1.CronJob{ObjectMeta: meta(), Spec: batchv1.CronJobSpec{Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: job}}}),
		"Role":                  applied(c, &rbacv1.Role{ObjectMeta: meta(), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}),
		"RoleBinding":           applied(c, &rbacv1.RoleBinding{ObjectMeta: meta(), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "web"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "web"}}}),
		"ServiceAccount":        applied(c, &corev1.ServiceAccount{ObjectMeta: meta(), AutomountServiceAccountToken: new(false)}),
		"PersistentVolumeClaim": applied(c, &corev1.PersistentVolumeClaim{ObjectMeta: meta(), Spec: claim()}),
		"Namespace":             applied(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: labels()}}),
	} {
		t.Run(name, test)
	}
}

func claim() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}
}

// TestTyped_LeavesReplicasToAnAutoscaler: a field that is nil keeps the value of another owner, and
// one that is set to zero does not.
func TestTyped_LeavesReplicasToAnAutoscaler(t *testing.T) {
	h := client.For[*appsv1.Deployment](newClient(t))
	key := types.NamespacedName{Namespace: "default", Name: "web"}
	desired := withKind(t, deployment()).(*appsv1.Deployment)
	testkit.NoError(t, testkit.Err(h.Apply(t.Context(), children.Typed(desired))))
	scaled, err := h.GetLive(t.Context(), key)
	testkit.NoError(t, err)
	scaled.Spec.Replicas = new(int32(7))
	testkit.NoError(t, testkit.Err(h.Update(t.Context(), scaled, client.FieldOwner("autoscaler"))))
	desired.Spec.Template.Spec.Containers[0].Image = "web:2"
	got, err := h.Apply(t.Context(), children.Typed(desired))
	testkit.NoError(t, err)
	testkit.Equal(t, *got.Spec.Replicas, 7)
	testkit.Equal(t, got.Spec.Template.Spec.Containers[0].Image, "web:2")
	desired.Spec.Replicas = new(int32(0))
	if got, err = h.Apply(t.Context(), children.Typed(desired)); err != nil || *got.Spec.Replicas != 0 {
		t.Errorf("%+v: %v", got.Spec, err)
	}
}

// TestTyped_FailsInTheClient: the error of the encoding is the error of the apply.
func TestTyped_FailsInTheClient(t *testing.T) {
	d := withKind(t, deployment()).(*appsv1.Deployment)
	d.Spec.Template.Spec.Containers[0].Name = ""
	_, err := client.For[*appsv1.Deployment](newClient(t)).Apply(t.Context(), children.Typed(d))
	testkit.ErrorContains(t, err, ".spec.template.spec.containers[0].name")
	testkit.ErrorContains(t, err, "Deployment")
}

func TestWith_EncodesTheChildOnly(t *testing.T) {
	plain := children.Typed(&corev1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"a": "b"}})
	want, err := json.Marshal(plain)
	testkit.NoError(t, err)
	got, err := json.Marshal(children.With(plain, children.Optional()))
	testkit.Equal(t, err, nil)
	testkit.Equal(t, string(got), string(want))
}
