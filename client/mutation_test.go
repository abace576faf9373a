// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func fill(m *corev1.ConfigMap) error {
	m.Data = map[string]string{"a": "b"}
	return nil
}

// verbs returns the verbs of all requests except discovery.
func verbs(api *sim.Server) (all []string) {
	for _, r := range api.Requests() {
		if r.Verb != "discover" {
			all = append(all, r.Verb)
		}
	}
	return all
}

// TestCreateOrUpdate_RetriesAConflict: a conflict is retried with the live object, five times in
// all.
func TestCreateOrUpdate_RetriesAConflict(t *testing.T) {
	for conflicts, want := range map[int][]string{
		0: {"get", "update"}, 4: slices.Repeat([]string{"get", "update"}, 5), 5: slices.Repeat([]string{"get", "update"}, 5),
	} {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		left := conflicts
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "update" && left > 0 {
				left--
				return r.FailWith(metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "modified"})
			}
			return nil, nil
		})
		maps, calls := client.For[*corev1.ConfigMap](newClient(t, api, client.Options{})), 0
		stored, is, err := client.CreateOrUpdate(t.Context(), maps, testkit.ConfigMap("a"), func(m *corev1.ConfigMap) error { calls++; return fill(m) })
		if conflicts < 5 && (err != nil || is != client.Updated || stored.Data["a"] != "b") {
			t.Errorf("%d conflicts: %v, %s, %v", conflicts, stored, is, err)
		}
		if conflicts == 5 && (!apierrors.IsConflict(err) || stored != nil) {
			t.Errorf("%d conflicts: %v, %v", conflicts, stored, err)
		}
		testkit.SlicesEqual(t, verbs(api), want, fmt.Sprintf("%d conflicts", conflicts))
		testkit.Equal(t, calls, len(want)/2, fmt.Sprintf("%d conflicts", conflicts))
	}
}

// TestCreateOrUpdate_LosesARace: another client creates the object first, or deletes it.
func TestCreateOrUpdate_LosesARace(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	first := true
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Verb == "create" && first {
			first = false
			api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		}
		return nil, nil
	})
	ctx, maps := t.Context(), client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	read, is, err := client.CreateOrUpdate(ctx, maps, testkit.ConfigMap("a"), fill)
	testkit.NoError(t, err, "created by another client")
	testkit.Equal(t, is, client.Updated, "created by another client")
	testkit.SlicesEqual(t, verbs(api), []string{"get", "create", "get", "update"}, "created by another client")
	api.Remove(sim.ConfigMaps, "default", "a")
	read.Labels = map[string]string{"old": "yes"}
	stored, is, err := client.CreateOrUpdate(ctx, maps, read, func(m *corev1.ConfigMap) error {
		m.Data = map[string]string{"a": "c"}
		return nil
	})
	if err != nil || is != client.Created || stored.Data["a"] != "c" || stored.Labels != nil {
		t.Errorf("deleted by another client: %v, %s, %v", stored, is, err)
	}
}

// TestCreateOrUpdate_ReadMayFail: an error other than "not found" creates nothing.
func TestCreateOrUpdate_ReadMayFail(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Verb == "get" {
			return r.Fail(http.StatusForbidden, "no right to get")
		}
		return nil, nil
	})
	maps := client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	_, _, err := client.CreateOrUpdate(t.Context(), maps, testkit.ConfigMap("a"), fill)
	testkit.ErrorSatisfies(t, err, apierrors.IsForbidden)
	testkit.SlicesEqual(t, verbs(api), []string{"get"}, "requests")
}

// TestCreateOrUpdate_KeepsTheVersion: a mutate that assigns a whole object cannot overwrite changes
// of others, and is a no-op if the content is the same.
func TestCreateOrUpdate_KeepsTheVersion(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	ctx, maps := t.Context(), client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	assign := func(m *corev1.ConfigMap) error {
		desired := testkit.ConfigMap("a")
		desired.Data = map[string]string{"a": "b"}
		*m = *desired
		return nil
	}
	old, _, err := client.CreateOrUpdate(ctx, maps, testkit.ConfigMap("a"), assign)
	testkit.NoError(t, err)
	if _, is, err := client.CreateOrUpdate(ctx, maps, old, assign); is != client.Unchanged || err != nil {
		t.Errorf("%s, %v", is, err)
	}
	testkit.Len(t, verbs(api), 2)
	changed := old.DeepCopy()
	changed.Data["theirs"] = "x"
	api.Put(sim.ConfigMaps, changed)
	seen := 0
	_, is, err := client.CreateOrUpdate(ctx, maps, old, func(m *corev1.ConfigMap) error {
		seen = len(m.Data)
		m.Data["a"], m.ResourceVersion, m.UID = "c", "", ""
		return nil
	})
	testkit.NoError(t, err)
	testkit.Equal(t, is, client.Updated)
	testkit.Equal(t, seen, 2)
}

func TestCreateOrPatch(t *testing.T) {
	api := sim.NewServer(sim.Deployments)
	ctx, deployments := t.Context(), client.For[*appsv1.Deployment](newClient(t, api, client.Options{}))
	d := web()
	set := func(replicas, ready int32) func(*appsv1.Deployment) error {
		return func(d *appsv1.Deployment) error {
			d.Spec.Replicas, d.Status.ReadyReplicas = &replicas, ready
			return nil
		}
	}
	for _, step := range []struct {
		replicas, ready int32
		want            client.Result
		requests        []string
	}{
		{1, 1, client.Created, []string{"get", "create", "patch"}},
		{1, 1, client.Unchanged, []string{"get"}},
		{2, 1, client.Updated, []string{"get", "patch"}},
		{2, 2, client.Updated, []string{"get", "patch"}},
		{3, 3, client.Updated, []string{"get", "patch", "patch"}},
	} {
		before := len(verbs(api))
		stored, is, err := client.CreateOrPatch(ctx, deployments, d, set(step.replicas, step.ready))
		if err != nil || is != step.want || *stored.Spec.Replicas != step.replicas || stored.Status.ReadyReplicas != step.ready {
			t.Errorf("%+v: %v, %s, %v", step, stored, is, err)
		}
		testkit.SlicesEqual(t, verbs(api)[before:], step.requests, step, "requests")
	}
}

// TestCreateOrPatch_TheLastFinalizer: an object that is gone after its last finalizer was removed
// is not created again.
func TestCreateOrPatch_TheLastFinalizer(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	deleted := testkit.ConfigMap("a")
	deleted.Finalizers, deleted.DeletionTimestamp = []string{"example.com/a"}, new(metav1.Now())
	api.Put(sim.ConfigMaps, deleted)
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Verb == "patch" {
			return r.FailWith(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "gone"})
		}
		return nil, nil
	})
	maps := client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	_, is, err := client.CreateOrPatch(t.Context(), maps, testkit.ConfigMap("a"), func(m *corev1.ConfigMap) error { m.Finalizers = nil; return nil })
	testkit.ErrorSatisfies(t, err, apierrors.IsNotFound)
	testkit.Equal(t, is, client.Unchanged)
	testkit.SlicesEqual(t, verbs(api), []string{"get", "patch"}, "requests")
}

// TestPatchFrom_IgnoresWhatTheServerSets: before and after may be of different versions.
func TestPatchFrom_IgnoresWhatTheServerSets(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	ctx, maps := t.Context(), client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	before, err := maps.Create(ctx, testkit.ConfigMap("a"))
	testkit.NoError(t, err)
	after := before.DeepCopy()
	after.ResourceVersion, after.Generation, after.CreationTimestamp = "1", 7, metav1.Time{}
	after.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	same, err := client.PatchFrom(ctx, maps, before, after)
	if err != nil || same == before || same.ResourceVersion != before.ResourceVersion || len(verbs(api)) != 1 {
		t.Errorf("%v, %v, requests %v", same, err, verbs(api))
	}
	after.Data = map[string]string{"a": "b"}
	testkit.Equal(t, testkit.Must(client.PatchFrom(ctx, maps, before, after, client.FieldOwner("mine"))).Data["a"], "b")
	testkit.Equal(t, api.Requests()[len(api.Requests())-1].Query.Get("fieldManager"), "mine", "the field owner")
}

func TestMutationMistakes(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	c, ctx := newClient(t, api, client.Options{}), t.Context()
	maps := client.For[*corev1.ConfigMap](c)
	read := testkit.ConfigMap("a")
	read.UID, read.ResourceVersion = "u", "1"
	rename := func(m *corev1.ConfigMap) error { m.Name = "other"; return nil }
	for what, tt := range map[string]struct {
		err  error
		want []string
	}{
		"nil":       {third(client.CreateOrUpdate(ctx, maps, nil, fill)), []string{"client.CreateOrUpdate: the object is nil"}},
		"no name":   {third(client.CreateOrUpdate(ctx, maps, &corev1.ConfigMap{}, fill)), []string{"client.CreateOrUpdate ConfigMap", "the name is empty"}},
		"no mutate": {third(client.CreateOrPatch(ctx, maps, read, nil)), []string{"client.CreateOrPatch ConfigMap default/a: mutate is nil"}},
		"rename": {third(client.CreateOrUpdate(ctx, maps, read, rename)),
			[]string{"client.CreateOrUpdate ConfigMap default/a: mutate changed the name to default/other", "another call"}},
		"a lock for an update": {third(client.CreateOrUpdate(ctx, maps, read, fill, client.OptimisticLock())),
			[]string{"update ConfigMap: this call does not take client.OptimisticLock"}},
		"a lock for a patch": {second(maps.Patch(ctx, name("default", "a"), types.MergePatchType, []byte("{}"), client.OptimisticLock())),
			[]string{"patch ConfigMap: this call does not take client.OptimisticLock"}},
		"a lock without a version": {second(client.PatchFrom(ctx, maps, testkit.ConfigMap("a"), read, client.OptimisticLock())),
			[]string{"client.PatchFrom ConfigMap default/a: client.OptimisticLock needs a resourceVersion"}},
		"patch from nil":   {second(client.PatchFrom(ctx, maps, nil, read)), []string{"client.PatchFrom: an object is nil"}},
		"patch no name":    {second(client.PatchFrom(ctx, maps, &corev1.ConfigMap{}, read)), []string{"the first object has no name"}},
		"patch to another": {second(client.PatchFrom(ctx, maps, read, testkit.ConfigMap("b"))), []string{"client.PatchFrom: the objects are ConfigMap default/a and ConfigMap default/b"}},
		"delete all of all": {maps.DeleteAll(ctx, client.ListOptions{}),
			[]string{"delete all ConfigMap: nothing is selected", "labels.Everything()"}},
		"delete all if": {maps.DeleteAll(ctx, client.ListOptions{Namespace: "default"}, client.Preconditions("u", "")),
			[]string{"delete all ConfigMap: this call does not take client.Preconditions"}},
		"an unknown mode": {second(maps.Create(ctx, read, client.FieldValidation("Loud"))),
			[]string{"create ConfigMap: client.FieldValidation", `it is "Loud"; give Strict, Warn or Ignore`}},
		"no mode":            {second(maps.Create(ctx, read, client.FieldValidation(""))), []string{"client.FieldValidation: it is empty"}},
		"an unforced update": {second(maps.Update(ctx, read, client.NoForce())), []string{"update ConfigMap: this call does not take client.NoForce"}},
		"a wrong client":     {client.Options{FieldValidation: "loud"}.Validate(), []string{`client.Options.FieldValidation: it is "loud"`}},
	} {
		t.Run(what, func(t *testing.T) { wants(t, tt.err, tt.want...) })
	}
	testkit.Len(t, verbs(api), 0)
	failed := errors.New("no color")
	_, _, err := client.CreateOrUpdate(ctx, maps, read, func(*corev1.ConfigMap) error { return failed })
	testkit.Equal(t, err, failed)
	testkit.Len(t, verbs(api), 0)
}

func third[A, B any](_ A, _ B, err error) error { return err }

// TestCreateOrUpdate_Unstructured: the new object has its kind.
func TestCreateOrUpdate_Unstructured(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	h := client.ForKind[*unstructured.Unstructured](newClient(t, api, client.Options{}), corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	u := &unstructured.Unstructured{}
	u.SetNamespace("default")
	u.SetName("a")
	set := func(value string) func(*unstructured.Unstructured) error {
		return func(u *unstructured.Unstructured) error {
			return unstructured.SetNestedField(u.Object, value, "data", "a")
		}
	}
	ctx := t.Context()
	stored, is, err := client.CreateOrUpdate(ctx, h, u, set("b"))
	testkit.NoError(t, err)
	testkit.Equal(t, is, client.Created)
	testkit.Equal(t, stored.GetKind(), "ConfigMap")
	if _, is, err = client.CreateOrUpdate(ctx, h, stored, set("b")); err != nil || is != client.Unchanged {
		t.Errorf("%s, %v", is, err)
	}
	if _, is, err = client.CreateOrPatch(ctx, h, u, set("c")); err != nil || is != client.Updated {
		t.Errorf("%s, %v", is, err)
	}
	testkit.NotEqual(t, api.Object(sim.ConfigMaps, "default", "a"), nil, "it is gone")
}

func TestIgnore(t *testing.T) {
	api := sim.NewServer(sim.ConfigMaps)
	ctx, maps := t.Context(), client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	testkit.Equal(t, client.ObjectKeyFromObject(testkit.ConfigMap("a")), name("default", "a"))
	missing := second(maps.GetLive(ctx, name("default", "a")))
	api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
	exists := second(maps.Create(ctx, testkit.ConfigMap("a")))
	testkit.Equal(t, client.IgnoreNotFound(missing), nil)
	testkit.NotEqual(t, client.IgnoreNotFound(exists), nil)
	testkit.Equal(t, client.IgnoreNotFound(nil), nil)
	testkit.Equal(t, client.IgnoreAlreadyExists(exists), nil)
	testkit.NotEqual(t, client.IgnoreAlreadyExists(missing), nil)
	testkit.Equal(t, client.IgnoreAlreadyExists(nil), nil)
}

// TestPatchFrom_KeepsWhatOthersAdded: a patch that replaces a list of a built-in kind is a conflict
// if the object has changed since it was read, and two patches of single elements are not.
func TestPatchFrom_KeepsWhatOthersAdded(t *testing.T) {
	cfg := sim.New(t, scheme.Scheme).Config()
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	policies, ctx := client.For[*netv1.NetworkPolicy](c), t.Context()
	read, err := policies.Create(ctx, &netv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	testkit.NoError(t, err)
	for i, want := range []bool{false, true} {
		changed := read.DeepCopy()
		changed.Finalizers = []string{"x.dev/" + strconv.Itoa(i)}
		testkit.Equal(t, testkit.Err(client.PatchFrom(ctx, policies, read, changed)), nil, fmt.Sprintf("finalizer %d", i))
		if i == 0 {
			read, err = policies.GetLive(ctx, client.ObjectKeyFromObject(read))
			testkit.NoError(t, err)
		}
		changed = read.DeepCopy()
		changed.Spec.Egress = []netv1.NetworkPolicyEgressRule{{}}
		testkit.Equal(t, apierrors.IsConflict(testkit.Err(client.PatchFrom(ctx, policies, read, changed))), want, fmt.Sprintf("egress %d", i))
	}
}
