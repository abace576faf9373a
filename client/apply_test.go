// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// applying applies one object repeatedly. It has the live state as a cache would show it.
type applying struct {
	t           *testing.T
	api         *sim.Server
	deployments *client.Handle[*appsv1.Deployment]
	skipped     []hook.SkippedApply
}

func newApplying(t *testing.T) *applying {
	a := &applying{t: t, api: sim.NewServer(sim.Deployments)}
	hooks := hook.On(func(s *hook.SkippedApply) { a.skipped = append(a.skipped, *s) })
	a.deployments = client.For[*appsv1.Deployment](newClient(t, a.api, client.Options{Hook: hooks}))
	return a
}

func replicas(n int32) *appsac.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "web"}
	return appsac.Deployment("web", "default").WithSpec(appsac.DeploymentSpec().WithReplicas(n).
		WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(coreac.PodTemplateSpec().WithLabels(labels).WithSpec(coreac.PodSpec().
			WithContainers(coreac.Container().WithName("web").WithImage("web:1")))))
}

// TestApply_OfAnotherKind: a configuration without a kind, or with another one, is not sent.
func TestApply_OfAnotherKind(t *testing.T) {
	a := newApplying(t)
	kindless := replicas(1)
	kindless.Kind, kindless.APIVersion = nil, nil
	other := replicas(1).WithKind("ReplicaSet")
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetName("web")
	for want, c := range map[string]client.ApplyConfiguration{
		"has no kind; set its apiVersion and kind, or the TypeMeta of its object, to apps/v1 and Deployment": kindless,
		"the configuration has no kind":                             client.UnstructuredConfiguration(object),
		"the configuration is of a ReplicaSet, not of a Deployment": other,
	} {
		testkit.ErrorContains(t, testkit.Err(a.deployments.Apply(t.Context(), c)), want)
	}
}

// web is a valid Deployment.
func web() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
}

// live is the object as a cache would show it: without managedFields, and with no kind.
func (a *applying) live() *appsv1.Deployment {
	a.t.Helper()
	d, err := a.deployments.GetLive(a.t.Context(), name("default", "web"))
	testkit.NoError(a.t, err)
	d.ManagedFields = nil
	d.TypeMeta = metav1.TypeMeta{}
	return d
}

// put is a write by another client. Its numbers are as in JSON, so that unchanged fields stay
// equal.
func (a *applying) put(d *appsv1.Deployment) {
	a.t.Helper()
	u := &unstructured.Unstructured{}
	data, err := json.Marshal(d)
	if err == nil {
		err = json.Unmarshal(data, &u.Object)
	}
	testkit.NoError(a.t, err)
	a.api.Put(sim.Deployments, u)
}

// create applies the object.
func (a *applying) create() {
	a.t.Helper()
	a.want(sent, replicas(1), nil)
	a.want(skipped, replicas(1), a.live())
}

// sends reports whether an apply is sent.
func (a *applying) sends(desired client.ApplyConfiguration, live *appsv1.Deployment, o ...client.Option) bool {
	a.t.Helper()
	before, skipped := a.api.Count("apply", sim.Deployments), len(a.skipped)
	d, err := a.deployments.Apply(a.t.Context(), desired, append(o, client.UnlessAlready(live))...)
	testkit.NoError(a.t, err)
	sent := a.api.Count("apply", sim.Deployments) - before
	testkit.Equal(a.t, sent+len(a.skipped)-skipped, 1)
	if sent == 0 && (d == live || d.UID != live.UID || d.ResourceVersion != live.ResourceVersion) {
		a.t.Errorf("the result of what was not sent is %+v, want a copy of the live object", d)
	}
	return sent == 1
}

func (a *applying) want(sent bool, desired client.ApplyConfiguration, live *appsv1.Deployment, o ...client.Option) {
	a.t.Helper()
	testkit.Equal(a.t, a.sends(desired, live, o...), sent)
}

const (
	sent    = true
	skipped = false
)

func TestUnlessAlready(t *testing.T) {
	a := newApplying(t)
	a.create()
	a.want(skipped, replicas(1), a.live())
	a.want(skipped, replicas(1), a.live())
	a.want(sent, replicas(1), nil) // not in the cache: who knows
	a.want(skipped, replicas(1), a.live())

	// What the API server writes by itself, and others write to the status, does not count.
	d := a.live()
	d.Status.Replicas = 7
	d.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "x", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "apps/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
	}}
	a.put(d)
	if d = a.live(); d.Status.Replicas != 7 {
		t.Fatal("no status")
	}
	d.APIVersion, d.Kind = "apps/v1", "Deployment"
	a.want(skipped, replicas(1), d)

	// A changed request.
	a.want(sent, replicas(2), a.live())
	a.want(skipped, replicas(2), a.live())
	a.want(sent, replicas(1), a.live())

	// A stale cache shows an earlier response, which the present request did not cause.
	old := a.live()
	a.want(sent, replicas(2), old)
	a.want(sent, replicas(1), old)

	// What others change counts, whether it is in the request or not.
	generation := a.live().Generation
	for _, change := range []func(*appsv1.Deployment){
		func(d *appsv1.Deployment) { n := int32(9); d.Spec.Replicas = &n },
		func(d *appsv1.Deployment) { d.Spec.Paused = true },
		func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} },
		func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} },
		func(d *appsv1.Deployment) { d.Finalizers = []string{"example.com/a"} },
	} {
		a.want(skipped, replicas(1), a.live())
		d := a.live()
		change(d)
		a.put(d)
		a.want(sent, replicas(1), a.live())
	}
	testkit.Equal(t, a.live().Generation, generation+4, fmt.Sprintf("generation, it was %d", generation), "two changes of the spec, one back, and one of the annotations")
	d = a.live()
	d.Annotations = map[string]string{"a": "b", corev1.LastAppliedConfigAnnotation: "{}"}
	a.want(skipped, replicas(1), d)

	// One that is being deleted, and a new one of the same name.
	d = a.live()
	testkit.NoError(t, a.deployments.Delete(t.Context(), name("default", "web")))
	a.want(sent, replicas(1), a.live())
	a.api.Remove(sim.Deployments, "default", "web")
	a.want(sent, replicas(1), nil)
	// The cache still shows the one before.
	testkit.ErrorSatisfies(t, testkit.Err(a.deployments.Apply(t.Context(), replicas(1), client.UnlessAlready(d))), apierrors.IsConflict)
	a.want(skipped, replicas(1), a.live())

	testkit.Equal(t, a.skipped[0], hook.SkippedApply{Group: "apps", Version: "v1", Resource: "deployments"})
}

// TestUnlessAlreadyIsAskedFor shows what is always sent, and what leaves no trace.
func TestUnlessAlreadyIsAskedFor(t *testing.T) {
	a := newApplying(t)
	a.want(sent, replicas(1), nil, client.DryRun())
	a.want(sent, replicas(1), nil)
	a.want(skipped, replicas(1), a.live())
	a.want(sent, replicas(1), a.live(), client.DryRun())
	a.want(skipped, replicas(1), a.live())
	before := a.api.Count("apply", sim.Deployments)
	testkit.NoError(t, testkit.Err(a.deployments.Apply(t.Context(), replicas(1))), "without the option it was not sent")
	testkit.Equal(t, a.api.Count("apply", sim.Deployments), before+1, "without the option it was not sent")
	// Each field owner has its own.
	a.want(sent, replicas(1), a.live(), client.FieldOwner("other"))
	a.want(skipped, replicas(1), a.live(), client.FieldOwner("other"))
	a.want(skipped, replicas(1), a.live())

	// After an error it is not known what has become of it.
	live := a.live()
	a.api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Verb == "apply" {
			return r.Fail(http.StatusInternalServerError, "perhaps")
		}
		return nil, nil
	})
	testkit.NotEqual(t, testkit.Err(a.deployments.Apply(t.Context(), replicas(2), client.UnlessAlready(live))), nil, "no error")
	a.api.Intercept(nil)
	a.want(sent, replicas(1), live)

	// Another client knows nothing: as after a start.
	if c := client.For[*appsv1.Deployment](newClient(t, a.api, client.Options{})); c != nil {
		before := a.api.Count("apply", sim.Deployments)
		testkit.NoError(t, testkit.Err(c.Apply(t.Context(), replicas(1), client.UnlessAlready(a.live()))), "another client has not sent it")
		testkit.Equal(t, a.api.Count("apply", sim.Deployments), before+1, "another client has not sent it")
	}
	testkit.NotEqual(t, len(a.skipped), 0, "nothing was skipped")
}

func TestUnlessAlreadyStatus(t *testing.T) {
	a := newApplying(t)
	a.create()
	apply := func(n int32) int {
		t.Helper()
		before := a.api.Count("apply", sim.Deployments)
		status := appsac.Deployment("web", "default").WithStatus(appsac.DeploymentStatus().WithReplicas(n))
		testkit.NoError(t, testkit.Err(a.deployments.ApplyStatus(journal.With(t.Context(), journal.New(journal.Origin{Controller: "c"})), status, client.UnlessAlready(a.live()))))
		return a.api.Count("apply", sim.Deployments) - before
	}
	got := []int{apply(1), apply(1), apply(2), apply(2)}
	d := a.live()
	d.Status.ReadyReplicas = 5 // by another client
	a.put(d)
	testkit.Equal(t, a.live().Generation, d.Generation, "the spec was changed, too")
	got = append(got, apply(2), apply(2))
	testkit.SlicesEqual(t, got, []int{1, 0, 1, 0, 1, 0})
	if s := a.skipped[len(a.skipped)-1]; s.Subresource != "status" || s.Controller != "c" {
		t.Errorf("got %+v", s)
	}
}

func TestUnlessAlreadyUnstructured(t *testing.T) {
	api := sim.NewServer(widgets)
	h := client.ForKind[*unstructured.Unstructured](newClient(t, api, client.Options{}), widgetKind)
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"namespace": "default", "name": "a", "annotations": map[string]any{corev1.LastAppliedConfigAnnotation: "x"}, "resourceVersion": "",
	}, "spec": map[string]any{"size": int64(1)}, "status": map[string]any{}}}
	u.SetGroupVersionKind(widgetKind)
	live, err := h.Apply(t.Context(), client.UnstructuredConfiguration(u), client.UnlessAlready(nil))
	testkit.NoError(t, err)
	before := live.DeepCopy()
	again, err := h.Apply(t.Context(), client.UnstructuredConfiguration(u), client.UnlessAlready(live))
	testkit.NoError(t, err)
	testkit.Equal(t, api.Count("apply", widgets), 1)
	again.SetName("other")
	if again.SetLabels(map[string]string{"x": "y"}); live.GetName() != before.GetName() || live.GetAnnotations()[corev1.LastAppliedConfigAnnotation] != "x" || live.GetLabels() != nil {
		t.Errorf("the given object was changed: %v", live)
	}
}

// TestUnlessAlreadyForgets shows that an unchanged object is sent again after an hour.
func TestUnlessAlreadyForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newApplying(t)
		a.want(sent, replicas(1), nil)
		time.Sleep(59 * time.Minute)
		a.want(skipped, replicas(1), a.live())
		time.Sleep(2 * time.Minute)
		a.want(sent, replicas(1), a.live())
		a.want(skipped, replicas(1), a.live())
	})
}

func TestUnlessAlreadyConcurrently(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	deployments := client.For[*appsv1.Deployment](newClient(t, api, client.Options{}))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			var live *appsv1.Deployment
			for n := range int32(50) {
				d, err := deployments.Apply(t.Context(), replicas(n/10+int32(i%2)), client.UnlessAlready(live))
				if err != nil {
					t.Error(err)
					return
				}
				live = d
			}
		})
	}
	all.Wait()
	// The last apply is stored, whichever calls were skipped.
	live, err := deployments.Apply(t.Context(), replicas(100), client.UnlessAlready(nil))
	testkit.NoError(t, err)
	testkit.Equal(t, *live.Spec.Replicas, 100)
}

// BenchmarkUnlessAlready is what it costs to find out that nothing has to be sent.
func BenchmarkUnlessAlready(b *testing.B) {
	api := sim.NewServer(sim.Deployments)
	c, err := client.New(api.Config(), client.Options{})
	testkit.NoError(b, err)
	deployments, desired := client.For[*appsv1.Deployment](c), replicas(1)
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID("u")}}
	live.Spec.Template.Spec.Containers = []corev1.Container{{Name: "a", Image: "b", Env: []corev1.EnvVar{{Name: "x", Value: "y"}}}}
	api.Put(sim.Deployments, live)
	for range 2 {
		live, err = deployments.Apply(b.Context(), desired, client.UnlessAlready(live))
		testkit.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := deployments.Apply(b.Context(), desired, client.UnlessAlready(live)); err != nil {
			b.Fatal(err)
		}
	}
	testkit.AtMost(b, api.Count("apply", sim.Deployments), 2)
}
