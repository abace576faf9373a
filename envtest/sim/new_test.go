// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// Gadget is a custom kind.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GadgetSpec   `json:"spec,omitzero"`
	Status GadgetStatus `json:"status,omitzero"`
}

type GadgetSpec struct {
	Size int `json:"size"`
}

type GadgetStatus struct {
	Ready bool `json:"ready,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (g *Gadget) DeepCopyObject() apiruntime.Object {
	c := *g
	g.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// GadgetList is its list.
type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gadget `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *GadgetList) DeepCopyObject() apiruntime.Object { c := *l; return &c }

var gadgets = schema.GroupVersionResource{Group: "test.dev", Version: "v1", Resource: "gadgets"}

func gadgetScheme(t *testing.T) *apiruntime.Scheme {
	t.Helper()
	s := apiruntime.NewScheme()
	testkit.NoError(t, clientscheme.AddToScheme(s))
	s.AddKnownTypes(gadgets.GroupVersion(), &Gadget{}, &GadgetList{})
	s.AddKnownTypes(schema.GroupVersion{Group: "test.dev", Version: "v1beta1"}, &Gadget{}, &GadgetList{})
	metav1.AddToGroupVersion(s, gadgets.GroupVersion())
	return s
}

func gadget(namespace, name string) *Gadget {
	return &Gadget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: GadgetSpec{Size: 1}}
}

func TestNew_StoresObjectsForEveryClient(t *testing.T) {
	t.Parallel()
	deploy := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "given", Generation: 7}, Status: appsv1.DeploymentStatus{Replicas: 3},
	}
	g := gadget("team", "a")
	g.Status.Ready = true
	node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n"}}}
	server := sim.New(t, gadgetScheme(t), deploy, g, node, &corev1.ConfigMapList{Items: []corev1.ConfigMap{*configMap("one"), *configMap("two")}})
	cfg := server.Config()
	ctx := t.Context()
	typed := kubernetes.NewForConfigOrDie(cfg)
	d := testkit.Must(typed.AppsV1().Deployments("team").Get(ctx, "web", metav1.GetOptions{}))
	testkit.Equal(t, d.UID, "given")
	testkit.Equal(t, d.Generation, 7)
	testkit.Equal(t, d.Status.Replicas, 3)
	testkit.NotEqual(t, d.ResourceVersion, "")
	testkit.Equal(t, d.CreationTimestamp.IsZero(), false)
	testkit.Len(t, testkit.Must(typed.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})).Items, 2)
	spaces, err := typed.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	names := ""
	for _, n := range spaces.Items {
		names += n.Name + " " + string(n.Status.Phase) + " "
	}
	testkit.NoError(t, err)
	testkit.Equal(t, names, "default Active kube-node-lease Active kube-public Active kube-system Active team Active ")
	u := testkit.Must(dynamic.NewForConfigOrDie(cfg).Resource(gadgets).Namespace("team").Get(ctx, "a", metav1.GetOptions{}))
	testkit.DeepEqual(t, u.Object["status"], map[string]any{"ready": true})
	testkit.Equal(t, u.GetKind(), "Gadget")
	m := testkit.Must(metadata.NewForConfigOrDie(cfg).Resource(corev1.SchemeGroupVersion.WithResource("nodes")).Get(ctx, "n", metav1.GetOptions{}))
	testkit.Equal(t, m.Name, "n")
	testkit.NotEqual(t, m.UID, "")
	_, resources, err := typed.Discovery().ServerGroupsAndResources()
	testkit.NoError(t, err)
	testkit.AtLeast(t, len(resources), 20)
	testkit.Equal(t, server.Count("get", sim.Deployments), 1)
}

// TestNew_ObjectsHaveDefaults: an object that is given has the defaults of one that is created, and
// can be written back as it is.
func TestNew_ObjectsHaveDefaults(t *testing.T) {
	t.Parallel()
	of := metav1.ObjectMeta{Namespace: "default", Name: "a"}
	server := sim.New(t, gadgetScheme(t), &corev1.Secret{ObjectMeta: of}, &appsv1.Deployment{ObjectMeta: of})
	api := kubernetes.NewForConfigOrDie(server.Config())
	secrets, deployments := api.CoreV1().Secrets("default"), api.AppsV1().Deployments("default")
	s := testkit.Must(secrets.Get(t.Context(), "a", metav1.GetOptions{}))
	testkit.Equal(t, s.Type, corev1.SecretTypeOpaque)
	testkit.NoError(t, testkit.Err(secrets.Update(t.Context(), s, metav1.UpdateOptions{})))
	testkit.DeepEqual(t, testkit.Must(deployments.Get(t.Context(), "a", metav1.GetOptions{})).Spec.Replicas, new(int32(1)))
}

// definition returns the CustomResourceDefinition of Gadget.
func definition(scope string, versions ...string) *unstructured.Unstructured {
	var list []any
	for i, v := range versions {
		list = append(list, map[string]any{
			"name": v, "served": true, "storage": i == 0, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "gadgets.test.dev"},
		"spec": map[string]any{"group": "test.dev", "scope": scope, "names": map[string]any{"plural": "gadgets", "kind": "Gadget"}, "versions": list},
	}}
}

// TestNew_DefinitionsDescribeTheirKinds shows that a CustomResourceDefinition replaces the guess,
// and that versions share their objects.
func TestNew_DefinitionsDescribeTheirKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, client := t.Context(), dynamic.NewForConfigOrDie(sim.New(t, gadgetScheme(t), definition("Cluster", "v2", "v3"), gadgetOf("v2", "a")).Config())
		v2, v3 := client.Resource(gadgets.GroupResource().WithVersion("v2")), client.Resource(gadgets.GroupResource().WithVersion("v3"))
		_, err := client.Resource(gadgets).List(ctx, metav1.ListOptions{})
		testkit.ErrorSatisfies(t, err, apierrors.IsNotFound, "a version that the definition does not have")
		w := testkit.Must(v3.Watch(ctx, metav1.ListOptions{}))
		defer w.Stop()
		u := testkit.Must(v2.Get(ctx, "a", metav1.GetOptions{}))
		testkit.Equal(t, u.GetAPIVersion(), "test.dev/v2")
		u.SetLabels(map[string]string{"a": "b"})
		testkit.NoError(t, testkit.Err(v2.Update(ctx, u, metav1.UpdateOptions{})))
		for _, want := range []string{"", "b"} {
			o := (<-w.ResultChan()).Object.(*unstructured.Unstructured)
			testkit.Equal(t, o.GetAPIVersion(), "test.dev/v3", want)
			testkit.Equal(t, o.GetLabels()["a"], want)
		}
		crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
		testkit.NoError(t, crds.Delete(ctx, "gadgets.test.dev", metav1.DeleteOptions{}))
		testkit.Equal(t, (<-w.ResultChan()).Type, watch.Deleted, "the definition's object")
		_, open := <-w.ResultChan()
		testkit.Equal(t, open, false, "the watch without the definition")
		testkit.ErrorSatisfies(t, testkit.Err(v2.List(ctx, metav1.ListOptions{})), apierrors.IsNotFound, "a list without the definition")
	})
}

// TestNew_ALaterDefinitionReplacesTheGuess: of the plural, and of the versions.
func TestNew_ALaterDefinitionReplacesTheGuess(t *testing.T) {
	for _, plural := range []string{"gadgets", "gizmos"} {
		t.Run(plural, func(t *testing.T) {
			ctx, client := t.Context(), dynamic.NewForConfigOrDie(sim.New(t, gadgetScheme(t)).Config())
			guessed := client.Resource(gadgets)
			testkit.NoError(t, testkit.Err(guessed.List(ctx, metav1.ListOptions{})))
			d := definition("Cluster", "v2")
			d.SetName(plural + ".test.dev")
			testkit.NoError(t, unstructured.SetNestedField(d.Object, plural, "spec", "names", "plural"))
			crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
			testkit.NoError(t, testkit.Err(crds.Create(ctx, d, metav1.CreateOptions{})))
			_, err := client.Resource(gadgets.GroupResource().WithVersion("v2")).List(ctx, metav1.ListOptions{})
			testkit.Equal(t, err == nil, plural == "gadgets", "a list of gadgets in v2", err)
			_, err = client.Resource(schema.GroupVersionResource{Group: "test.dev", Version: "v2", Resource: plural}).List(ctx, metav1.ListOptions{})
			testkit.NoError(t, err, "a list as defined")
			testkit.ErrorSatisfies(t, testkit.Err(guessed.List(ctx, metav1.ListOptions{})), apierrors.IsNotFound, "a list as guessed")
		})
	}
}

func gadgetOf(version, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.dev/" + version, "kind": "Gadget", "metadata": map[string]any{"name": name},
	}}
}

func TestV2_UnsupportedRequestsFailWithMethodAndPath(t *testing.T) {
	cfg := sim.New(t, gadgetScheme(t)).Config()
	for _, path := range []string{"/logs", "/metrics", "/"} {
		err := kubernetes.NewForConfigOrDie(cfg).Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).Error()
		testkit.ErrorContains(t, err, "sim: GET "+path+" is not supported")
	}
}

// mock is a testing.TB whose failure and end are visible.
type mock struct {
	testing.TB
	failed  string
	cleanup []func()
}

func (m *mock) Helper()          {}
func (m *mock) Name() string     { return "TestMock" }
func (m *mock) Cleanup(f func()) { m.cleanup = append(m.cleanup, f) }
func (m *mock) Fatal(args ...any) {
	m.failed = fmt.Sprint(args...)
	runtime.Goexit()
}

// run calls f as a test and returns its failure.
func (m *mock) run(f func()) string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, c := range m.cleanup {
				c()
			}
		}()
		f()
	}()
	<-done
	return m.failed
}

func TestNew_BadInputFailsWithOneSentence(t *testing.T) {
	empty := apiruntime.NewScheme()
	nothing, gone, marked := gadget("a", ""), gadget("a", "b"), gadget("a", "b")
	marked.Labels = map[string]string{"a": "no value"}
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	inside := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
	anonymous := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "b"}}}
	other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "x.dev/v1", "kind": "Other", "metadata": map[string]any{"name": "b"}}}
	for _, c := range []struct {
		scheme  *apiruntime.Scheme
		objects []apiruntime.Object
		want    string
	}{
		{nil, nil, "sim: the scheme is nil; pass the one that your clients use, such as client-go's scheme.Scheme"},
		{empty, []apiruntime.Object{gadget("a", "b")}, "sim: *sim_test.Gadget is not registered in the scheme; call its package's AddToScheme"},
		{gadgetScheme(t), []apiruntime.Object{other},
			`sim: Other "b": x.dev/v1, Kind=Other is not served; add the kind to the scheme, or pass its CustomResourceDefinition`},
		{gadgetScheme(t), []apiruntime.Object{gadget("a", "b"), gadget("a", "b")}, `sim: Gadget "b" is given twice in namespace "a"; remove one or rename it`},
		{gadgetScheme(t), []apiruntime.Object{gadget("", "b")}, `sim: Gadget "b" has no namespace, but the kind is namespaced; ` +
			`set metadata.namespace, or pass a CustomResourceDefinition with scope Cluster`},
		{gadgetScheme(t), []apiruntime.Object{inside}, `sim: Node "b" is in namespace "a", but the kind is cluster-scoped; remove metadata.namespace`},
		{gadgetScheme(t), []apiruntime.Object{nothing}, `sim: Gadget "" has no name; set metadata.name`},
		{gadgetScheme(t), []apiruntime.Object{marked}, `sim: Gadget "b" is invalid: metadata.labels: Invalid value: "no value": ` +
			`a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', ` +
			`and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', ` +
			`regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'); correct it`},
		{gadgetScheme(t), []apiruntime.Object{gone}, `sim: Gadget "b" has a deletionTimestamp but no finalizer, so it would be gone; add a finalizer`},
		{gadgetScheme(t), []apiruntime.Object{definition("Global", "v1")}, `sim: CustomResourceDefinition "gadgets.test.dev" is invalid: ` +
			`spec.scope: Unsupported value: "Global": supported values: "Cluster", "Namespaced"; correct it`},
		{gadgetScheme(t), []apiruntime.Object{definition("Cluster", "v1"), gadget("a", "b")},
			`sim: Gadget "b" is in namespace "a", but the kind is cluster-scoped; remove metadata.namespace`},
		{gadgetScheme(t), []apiruntime.Object{(*Gadget)(nil)}, "sim: object 1 is nil; remove it"},
		{gadgetScheme(t), []apiruntime.Object{anonymous}, `sim: an unstructured object named "b" has no kind or apiVersion; set both`},
	} {
		m := &mock{TB: t}
		testkit.Equal(t, m.run(func() { sim.New(m, c.scheme, c.objects...) }), c.want)
	}
}

func TestV3_NothingOutlivesTheTest(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(*testing.T)){
		"bubble": synctest.Test, "real time": func(t *testing.T, f func(*testing.T)) { t.Helper(); f(t) },
	} {
		run(t, func(t *testing.T) {
			m, body := &mock{TB: t}, io.ReadCloser(nil)
			var typed kubernetes.Interface
			m.run(func() {
				typed = kubernetes.NewForConfigOrDie(sim.New(m, gadgetScheme(t)).Config())
				var err error
				body, err = typed.CoreV1().RESTClient().Get().Resource("configmaps").Param("watch", "true").Stream(t.Context())
				testkit.Equal(t, err, nil)
			})
			_, _ = io.ReadAll(body) // the open watch ends
			_ = body.Close()
			_, err := typed.CoreV1().ConfigMaps("a").Get(context.Background(), "b", metav1.GetOptions{})
			const want = "sim: GET /api/v1/namespaces/a/configmaps/b: the server is closed; stop its clients before the test ends"
			testkit.ErrorContains(t, err, want, name, "a request after the test")
		})
	}
}

// TestNew_ServersOfOneTestAreApart shows that servers never clash, whatever the name of the test.
func TestNew_ServersOfOneTestAreApart(t *testing.T) {
	a, b := sim.New(t, gadgetScheme(t), configMap("only")), sim.New(t, gadgetScheme(t))
	ctx := t.Context()
	testkit.NoError(t, testkit.Err(kubernetes.NewForConfigOrDie(a.Config()).CoreV1().ConfigMaps("default").Get(ctx, "only", metav1.GetOptions{})))
	_, err := kubernetes.NewForConfigOrDie(b.Config()).CoreV1().ConfigMaps("default").Get(ctx, "only", metav1.GetOptions{})
	testkit.ErrorSatisfies(t, err, apierrors.IsNotFound)
	a.Close()
	_, err = kubernetes.NewForConfigOrDie(b.Config()).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	testkit.NoError(t, err, "the other server ended, too")
}
