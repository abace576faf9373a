// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// cases have the same results on the sim and on the real server.
var cases = map[string]func(t *testing.T, cfg *rest.Config){
	"a list that was read":         testLists,
	"the last element":             testLastElement,
	"a kind in client-go's scheme": testGlobalScheme,
	"a deleted object":             testDeleted,
	"from Update to Apply":         testUpgrade,
	"parallel creates":             testParallel,
	"an object without owners":     testUntracked,
}

func TestCases_Sim(t *testing.T) {
	for name, test := range cases {
		t.Run(name, func(t *testing.T) { test(t, sim.NewServer(parcels, sim.ConfigMaps).Config()) })
	}
}

func newClient(t *testing.T, cfg *rest.Config) *client.Client {
	t.Helper()
	known := newScheme()
	testkit.NoError(t, scheme.AddToScheme(known))
	c, err := client.New(cfg, client.Options{Scheme: known, FieldOwner: "op"})
	testkit.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// testLists: PatchFrom of a stale object does not replace a list of a custom resource, in any form.
// CreateOrPatch tries again with the live object.
func testLists(t *testing.T, cfg *rest.Config) {
	c, ctx := newClient(t, cfg), t.Context()
	h := client.For[*Parcel](c)
	untyped, metadata := client.ForKind[*unstructured.Unstructured](c, kind), client.ForKind[*metav1.PartialObjectMetadata](c, kind)
	for field, add := range map[string]func(p *Parcel, what string){
		"finalizers": func(p *Parcel, what string) { p.Finalizers = append(p.Finalizers, what+".example.com/f") },
		"owners": func(p *Parcel, what string) {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: what, UID: types.UID(what)})
		},
		"items":        func(p *Parcel, what string) { p.Spec.Items = append(p.Spec.Items, what) },
		"status items": func(p *Parcel, what string) { p.Status.Items = append(p.Status.Items, what) },
	} {
		seen, err := h.Create(ctx, &Parcel{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "list-"}})
		testkit.NoError(t, err)
		changed := func(what string) *Parcel {
			after, _ := seen.DeepCopyObject().(*Parcel)
			add(after, what)
			return after
		}
		_, err = client.PatchFrom(ctx, h, seen, changed("a"))
		testkit.NoError(t, err)
		testkit.ErrorSatisfies(t, testkit.Err(client.PatchFrom(ctx, h, seen, changed("b"))), apierrors.IsConflict, field, "the error")
		_, _, err = client.CreateOrPatch(ctx, h, seen, func(p *Parcel) error { add(p, "b"); return nil })
		testkit.NoError(t, err)
		want, _ := seen.DeepCopyObject().(*Parcel)
		add(want, "a")
		add(want, "b")
		live, err := h.GetLive(ctx, client.ObjectKeyFromObject(seen))
		testkit.NoError(t, err)
		testkit.Equal(t, fmt.Sprint(live.Finalizers, live.OwnerReferences, live.Spec, live.Status), fmt.Sprint(want.Finalizers, want.OwnerReferences, want.Spec, want.Status), field)
		u, err := untyped.GetLive(ctx, client.ObjectKeyFromObject(seen))
		testkit.NoError(t, err)
		m, err := metadata.GetLive(ctx, client.ObjectKeyFromObject(seen))
		testkit.NoError(t, err)
		_, err = h.EnsureFinalizer(ctx, live, "c.example.com/f")
		testkit.NoError(t, err)
		otherU, otherM := u.DeepCopy(), m.DeepCopy()
		otherU.SetFinalizers(append(otherU.GetFinalizers(), "u.example.com/f"))
		otherM.SetFinalizers(append(otherM.GetFinalizers(), "m.example.com/f"))
		testkit.ErrorSatisfies(t, testkit.Err(client.PatchFrom(ctx, untyped, u, otherU)), apierrors.IsConflict, field, "unstructured: the error")
		testkit.ErrorSatisfies(t, testkit.Err(client.PatchFrom(ctx, metadata, m, otherM)), apierrors.IsConflict, field, "metadata: the error")
	}
	made := &Parcel{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "made"}}
	after, _ := made.DeepCopyObject().(*Parcel)
	after.Finalizers = []string{"a.example.com/f"}
	_, err := client.PatchFrom(ctx, h, made, after)
	testkit.ErrorContains(t, err, "the patch replaces metadata.finalizers, which others may have changed, so it needs a resourceVersion; give an object that was read")
}

// testLastElement: a patch that removes the last known element, label or annotation removes no
// other one, of a built-in kind and of another one.
func testLastElement(t *testing.T, cfg *rest.Config) {
	c, ctx := newClient(t, cfg), t.Context()
	h := client.For[*corev1.ConfigMap](c)
	seen, err := h.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", GenerateName: "last-", Finalizers: []string{"a.example.com/f"}, Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"a": "1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "a", UID: "a"}},
	}})
	testkit.NoError(t, err)
	other := seen.DeepCopy()
	other.Finalizers = append(other.Finalizers, "b.example.com/f")
	other.OwnerReferences = append(other.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "b", UID: "b"})
	other.Labels["b"], other.Annotations["b"] = "1", "1"
	_, err = client.PatchFrom(ctx, h, seen, other)
	testkit.NoError(t, err)
	without := seen.DeepCopy()
	without.Finalizers, without.OwnerReferences, without.Labels, without.Annotations = nil, nil, nil, nil
	got, err := client.PatchFrom(ctx, h, seen, without)
	testkit.NoError(t, err)
	b := map[string]string{"b": "1"}
	if !slices.Equal(got.Finalizers, []string{"b.example.com/f"}) || len(got.OwnerReferences) != 1 || !maps.Equal(got.Labels, b) || !maps.Equal(got.Annotations, b) {
		t.Errorf("a built-in kind has %v", got.ObjectMeta)
	}
	parcels := client.For[*Parcel](c)
	p, err := parcels.Create(ctx, &Parcel{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "last-", Labels: map[string]string{"a": "1"}}})
	testkit.NoError(t, err)
	_, err = parcels.Patch(ctx, client.ObjectKeyFromObject(p), types.MergePatchType, []byte(`{"metadata":{"labels":{"b":"1"}}}`))
	testkit.NoError(t, err)
	bare, _ := p.DeepCopyObject().(*Parcel)
	bare.Labels = nil
	p, err = client.PatchFrom(ctx, parcels, p, bare)
	if err != nil || !maps.Equal(p.Labels, b) {
		t.Errorf("the error is %v, the labels are %v", err, p)
	}
}

// testGlobalScheme: a custom type that is in client-go's scheme, too, gets a merge patch. A patch
// of a type that the API server refuses has an error with the verb and the kind.
func testGlobalScheme(t *testing.T, cfg *rest.Config) {
	scheme.Scheme.AddKnownTypes(kind.GroupVersion(), &Parcel{})
	c, ctx := newClient(t, cfg), t.Context()
	h := client.For[*Parcel](c)
	seen, err := h.Create(ctx, &Parcel{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "global-"}})
	testkit.NoError(t, err)
	after, _ := seen.DeepCopyObject().(*Parcel)
	after.Spec.Values = map[string]string{"a": "1"}
	_, err = client.PatchFrom(ctx, h, seen, after)
	testkit.NoError(t, err)
	_, err = h.Patch(ctx, client.ObjectKeyFromObject(seen), types.StrategicMergePatchType, []byte("{}"))
	if want := "patch Parcel " + client.ObjectKeyFromObject(seen).String() + ": "; !apierrors.IsUnsupportedMediaType(err) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the error is %v", err)
	}
}

// testDeleted: an apply with UnlessAlready does not bring back an object that another client has
// deleted, and does not write to one that has replaced it.
func testDeleted(t *testing.T, cfg *rest.Config) {
	c, ctx := newClient(t, cfg), t.Context()
	h := client.For[*corev1.ConfigMap](c)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "deleted"}, Data: map[string]string{"person": "1"}}
	seen, err := h.Create(ctx, m)
	testkit.NoError(t, err)
	apply := func() (*corev1.ConfigMap, error) {
		return h.Apply(ctx, coreac.ConfigMap(m.Name, m.Namespace).WithData(map[string]string{"op": "1"}), client.UnlessAlready(seen))
	}
	seen, err = apply()
	testkit.NoError(t, err)
	again, err := apply()
	if err != nil || again.ResourceVersion != seen.ResourceVersion {
		t.Errorf("the second apply was sent: %v", err)
	}
	seen.Labels = map[string]string{"stale": "1"}
	testkit.NoError(t, h.Delete(ctx, client.ObjectKeyFromObject(m)))
	testkit.ErrorSatisfies(t, testkit.Err(apply()), apierrors.IsConflict, "after a deletion the error")
	testkit.ErrorSatisfies(t, testkit.Err(h.GetLive(ctx, client.ObjectKeyFromObject(m))), apierrors.IsNotFound, "it is back")
	_, err = h.Create(ctx, m)
	testkit.NoError(t, err)
	testkit.ErrorSatisfies(t, testkit.Err(apply()), apierrors.IsConflict, "after a replacement the error")
}

// testUpgrade: after UpgradeManagedFields, an apply removes what Create and UpdateStatus wrote.
func testUpgrade(t *testing.T, cfg *rest.Config) {
	c, ctx := newClient(t, cfg), t.Context()
	h := client.For[*corev1.ConfigMap](c)
	m, err := h.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "moved-"}, Data: map[string]string{"kept": "1", "gone": "1", "later": "1"},
	})
	testkit.NoError(t, err)
	key := client.ObjectKeyFromObject(m)
	_, err = h.Patch(ctx, key, types.MergePatchType, []byte(`{"data":{"other":"1"}}`), client.FieldOwner("person"))
	testkit.NoError(t, err)
	upgraded, err := h.UpgradeManagedFields(ctx, key)
	testkit.Equal(t, err, nil)
	testkit.Equal(t, upgraded, true)
	for _, data := range []map[string]string{{"kept": "1", "later": "1"}, {"kept": "1"}} {
		m, err = h.Apply(ctx, coreac.ConfigMap(key.Name, key.Namespace).WithData(data))
		testkit.NoError(t, err)
		want := maps.Clone(data)
		if want["other"] = "1"; !maps.Equal(m.Data, want) {
			t.Errorf("the data is %v, want %v", m.Data, want)
		}
	}
	if upgraded, err := h.UpgradeManagedFields(ctx, key); err != nil || upgraded {
		t.Errorf("the second time: upgraded %t, error %v", upgraded, err)
	}
	testkit.ErrorSatisfies(t, testkit.Err(h.UpgradeManagedFields(ctx, types.NamespacedName{Namespace: "default", Name: "missing"})), apierrors.IsNotFound)
}

// testParallel: writes do not change their arguments, so several goroutines may share one.
func testParallel(t *testing.T, cfg *rest.Config) {
	c, ctx := newClient(t, cfg), t.Context()
	shared := &Parcel{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "parallel-"}}
	pod := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "parallel-"}}
	var writing sync.WaitGroup
	for range 8 {
		writing.Go(func() {
			for range 10 {
				testkit.Equal(t, testkit.Err(client.For[*Parcel](c).Create(ctx, shared)), nil)
				testkit.Equal(t, testkit.Err(client.For[*corev1.ConfigMap](c).Create(ctx, pod)), nil)
			}
		})
	}
	writing.Wait()
	if shared.Kind != "" || pod.Kind != "" {
		t.Errorf("the arguments have the kinds %q and %q", shared.Kind, pod.Kind)
	}
}

// testUntracked: after the creation of an object without a field, the API server tracks no field
// owners until the first apply. If this is of the status, it tracks only owners of the status. A
// later apply that gives up its last finalizer then removes all. docs/troubleshooting.md says so.
func testUntracked(t *testing.T, cfg *rest.Config) {
	if os.Getenv("SETPOINT_KUBERNETES") == "1.35" {
		t.Skip("in Kubernetes 1.35 the writer of a status owns metadata; see docs/versions.md")
	}
	c, ctx := newClient(t, cfg), t.Context()
	h := client.For[*Parcel](c)
	p, err := h.Create(ctx, &Parcel{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "untracked"}})
	testkit.NoError(t, err)
	if len(p.ManagedFields) > 0 {
		t.Fatalf("an object without a field has the field owners %v", p.ManagedFields)
	}
	p, err = h.EnsureFinalizer(ctx, p, "other.example.com/f")
	testkit.NoError(t, err)
	apply := func(change func(u *unstructured.Unstructured)) client.ApplyConfiguration {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": p.Namespace, "name": p.Name}}}
		u.SetGroupVersionKind(kind)
		change(u)
		return client.UnstructuredConfiguration(u)
	}
	_, err = h.ApplyStatus(ctx, apply(func(u *unstructured.Unstructured) {
		u.Object["status"] = map[string]any{"values": map[string]any{"op": "1"}}
	}))
	testkit.NoError(t, err)
	p, err = h.Apply(ctx, apply(func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"op.example.com/f"}) }))
	testkit.NoError(t, err)
	if len(p.Finalizers) != 2 {
		t.Fatalf("finalizers %v, want both", p.Finalizers)
	}
	p, err = h.Apply(ctx, apply(func(*unstructured.Unstructured) {}))
	testkit.NoError(t, err)
	testkit.Len(t, p.Finalizers, 0, "finalizers: the API server keeps what has no owner; remove the warning from docs/troubleshooting.md")
}
