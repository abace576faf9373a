// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/controllers"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// Loader fills a new store.
type Loader struct {
	store       *store.Store
	controllers *controllers.Controllers
}

// NewLoader returns a loader of a store.
func NewLoader(s *store.Store, c *controllers.Controllers) *Loader {
	return &Loader{store: s, controllers: c}
}

// Load serves the kinds of the scheme and stores the objects. It stops at the first invalid object.
func (l *Loader) Load(scheme *runtime.Scheme, objects []runtime.Object) error {
	list, err := contents(scheme, objects)
	if err != nil {
		return err
	}
	l.store.Lock()
	defer l.store.Unlock()
	l.serveBuiltIns()
	for _, u := range list {
		if u.GroupVersionKind().GroupKind() == kinds.CRDKind {
			if err := l.load(u); err != nil {
				return err
			}
		}
	}
	l.controllers.SettleCRDs()
	l.serveScheme(scheme)
	for _, u := range list {
		if u.GroupVersionKind().GroupKind() != kinds.CRDKind {
			if err := l.load(u); err != nil {
				return err
			}
		}
	}
	return nil
}

// serveBuiltIns serves what a new cluster has: its kinds and namespaces.
func (l *Loader) serveBuiltIns() {
	for _, d := range kinds.BuiltIns() {
		if d.GVR() == kinds.CRDs {
			d.Schema = kinds.CRDSchema{Schemas: l.store.Schemas}
		}
		l.controllers.Serve(d, l.store.Sibling(d))
	}
}

// serveScheme serves the custom kinds of a scheme that no CustomResourceDefinition describes.
func (l *Loader) serveScheme(scheme *runtime.Scheme) {
	groups := map[string]bool{}
	for _, d := range kinds.BuiltIns() {
		groups[d.Group] = true
	}
	defined := map[schema.GroupKind]bool{}
	for _, t := range l.store.Tables {
		defined[t.GVK().GroupKind()] = true
	}
	for _, gvk := range customKinds(scheme) {
		if groups[gvk.Group] || defined[gvk.GroupKind()] {
			continue
		}
		plural, singular := meta.UnsafeGuessKindToResource(gvk)
		d := kinds.Define(kinds.Resource{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Name: plural.Resource, Namespaced: true})
		d.Singular, d.Guessed = singular.Resource, true
		if _, ok := scheme.AllKnownTypes()[gvk].FieldByName("Status"); !ok {
			d.Subresources, d.Status = nil, false
		}
		l.controllers.Serve(d, l.store.Sibling(d))
	}
}

// customKinds returns the kinds of objects that are not Kubernetes' own, the newest version first.
func customKinds(scheme *runtime.Scheme) []schema.GroupVersionKind {
	object := reflect.TypeFor[metav1.Object]()
	var kinds []schema.GroupVersionKind
	for gvk, t := range scheme.AllKnownTypes() {
		own := strings.HasPrefix(t.PkgPath(), "k8s.io/api/") || strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/")
		if !own && gvk.Version != runtime.APIVersionInternal && reflect.PointerTo(t).Implements(object) {
			kinds = append(kinds, gvk)
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int {
		if a.GroupKind() != b.GroupKind() {
			return strings.Compare(a.GroupKind().String(), b.GroupKind().String())
		}
		return apiversion.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	return kinds
}

// contents converts objects, and the items of lists, to their stored form.
func contents(scheme *runtime.Scheme, objects []runtime.Object) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	for i, obj := range objects {
		if obj == nil || reflect.ValueOf(obj).IsZero() {
			return nil, fmt.Errorf("sim: object %d is nil; remove it", i+1)
		}
		items := []runtime.Object{obj}
		if meta.IsListType(obj) {
			var err error
			if items, err = meta.ExtractList(obj); err != nil {
				return nil, fmt.Errorf("sim: object %d: its items cannot be read: %w", i+1, err)
			}
		}
		for _, item := range items {
			u, err := content(scheme, item)
			if err != nil {
				return nil, err
			}
			list = append(list, u)
		}
	}
	return list, nil
}

func content(scheme *runtime.Scheme, obj runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			return nil, fmt.Errorf("sim: an unstructured object named %q has no kind or apiVersion; set both", u.GetName())
		}
		// Through JSON, because manifests have floats where a server has integers.
		data, err := json.Marshal(u.Object)
		if err != nil {
			return nil, fmt.Errorf("sim: %s %q is not JSON: %w", u.GetKind(), u.GetName(), err)
		}
		stored := &unstructured.Unstructured{}
		return stored, stored.UnmarshalJSON(data)
	}
	kinds, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return nil, fmt.Errorf("sim: %T is not registered in the scheme; call its package's AddToScheme", obj)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("sim: %T: %w", obj, err)
	}
	u := (&unstructured.Unstructured{Object: fields}).DeepCopy() // fields may share data with obj
	u.SetGroupVersionKind(kinds[0])
	return u, nil
}

func (l *Loader) load(u *unstructured.Unstructured) error {
	what := fmt.Sprintf("sim: %s %q", u.GetKind(), u.GetName())
	t := l.store.OfKind(u.GroupVersionKind())
	switch {
	case t == nil:
		return fmt.Errorf("%s: %s is not served; add the kind to the scheme, or pass its CustomResourceDefinition", what, u.GroupVersionKind())
	case u.GetName() == "":
		return fmt.Errorf("%s has no name; set metadata.name", what)
	case t.Namespaced && u.GetNamespace() == "":
		return fmt.Errorf("%s has no namespace, but the kind is namespaced; set metadata.namespace, or pass a CustomResourceDefinition with scope Cluster", what)
	case !t.Namespaced && u.GetNamespace() != "":
		return fmt.Errorf("%s is in namespace %q, but the kind is cluster-scoped; remove metadata.namespace", what, u.GetNamespace())
	case u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0:
		return fmt.Errorf("%s has a deletionTimestamp but no finalizer, so it would be gone; add a finalizer", what)
	}
	if t.Namespaced {
		l.controllers.EnsureNamespace(u.GetNamespace())
	}
	old := t.Objects[store.KeyOf(u)]
	if old != nil && t.Resource != kinds.Namespaces {
		return fmt.Errorf("%s is given twice in namespace %q; remove one or rename it", what, u.GetNamespace())
	}
	u, err := t.Codec().Normal(u)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	errs := rules.ValidateMeta(&t.Definition, u, field.NewPath("metadata"))
	if t.Schema != nil {
		errs = append(errs, t.Schema.Validate(u, nil, "")...)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%s is invalid: %w; correct it", what, errs.ToAggregate())
	}
	l.fill(t, u, old)
	if t.Prepare != nil {
		t.Prepare(u)
	}
	kind := watch.Added
	if old != nil {
		kind = watch.Modified
	}
	l.store.Record(t, kind, old, u)
	return nil
}

// fill sets the metadata that a server assigns, unless the object has it.
func (l *Loader) fill(t *store.Table, u, old *unstructured.Unstructured) {
	if old != nil && u.GetUID() == "" {
		u.SetUID(old.GetUID())
	}
	if u.GetUID() == "" {
		u.SetUID(l.store.NewUID())
	}
	if created := u.GetCreationTimestamp(); created.IsZero() {
		u.SetCreationTimestamp(metav1.Now())
	}
	if t.Generation != kinds.NoGeneration && u.GetGeneration() == 0 {
		u.SetGeneration(1)
	}
}
