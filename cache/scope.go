// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// Scope says which objects of a kind a handle is for, and what is kept of them. The zero value is all of them, without
// managedFields. Handles of equal scopes share their informers.
type Scope struct {
	// Kind says the kind where T does not: for *unstructured.Unstructured and *metav1.PartialObjectMetadata. For any other T
	// it must be empty, or what the scheme says.
	Kind schema.GroupVersionKind
	// Namespaces narrows a namespaced kind to these, each with an informer of its own. "" in it stands for all of them, as
	// metav1.NamespaceAll does. What can be no namespace adds nothing, and State and Stale say so. Default: all namespaces.
	Namespaces *Set[string]
	// Names narrows to single objects, each with an informer of its own, so that a right to these names is enough. It excludes
	// Namespaces. What can be no name adds nothing, as there. Default: all objects.
	Names *Set[types.NamespacedName]
	// Labels selects by labels, at the API server. An object that comes to match is a create to the sources of the handle,
	// one that ceases to a delete. labels.Nothing() is a scope of nothing. Default: all.
	Labels labels.Selector
	// Fields selects by those fields that the API server can select by: metadata.name and metadata.namespace, and a few of
	// some kinds. Default: all.
	Fields fields.Selector
	// Transform changes objects before they are kept, to drop what nobody reads. Handles share informers if it is the same
	// *Transform. Default: none.
	Transform *Transform
	// KeepManagedFields keeps metadata.managedFields, which the Extract functions of apply configurations need. Default: they
	// are dropped: they are up to 60 % of an object.
	KeepManagedFields bool
	// Resync is how often each source of the handle delivers every object again, unchanged, give or take a tenth.
	// Default: never.
	Resync time.Duration
}

// Validate names the field that is wrong.
func (s Scope) Validate() error {
	switch {
	case s.Namespaces != nil && s.Names != nil:
		return errors.New("cache.Scope has both Namespaces and Names; a name says its namespace, so give Names alone")
	case s.Resync < 0:
		return fmt.Errorf("cache.Scope.Resync is %s, it must not be negative", s.Resync)
	}
	return nil
}

func formOf(t reflect.Type) listwatch.Form {
	switch t {
	case reflect.TypeFor[*unstructured.Unstructured]():
		return listwatch.Unstructured
	case reflect.TypeFor[*metav1.PartialObjectMetadata]():
		return listwatch.Metadata
	default:
		return listwatch.Typed
	}
}

// place is what one informer of a scope is for: everything, a namespace, or one object.
type place = types.NamespacedName

// storeKey is how client-go's store names an object.
func storeKey(name types.NamespacedName) string { return toolscache.ObjectName(name).String() }

// key is what informers are shared by.
type key struct {
	gvk               schema.GroupVersionKind
	form              listwatch.Form
	place             place
	labels, fields    string
	transform         *Transform
	keepManagedFields bool
	foreign           *foreign // of an informer that was not made here
}

func (s Scope) key(gvk schema.GroupVersionKind, f listwatch.Form) key {
	k := key{gvk: gvk, form: f, transform: s.Transform, keepManagedFields: s.KeepManagedFields}
	if s.Labels != nil {
		k.labels = s.Labels.String()
	}
	if s.Fields != nil {
		k.fields = s.Fields.String()
	}
	return k
}

// at returns the key of a part of the scope.
func (k key) at(p place) key {
	k.place = p
	return k
}

// fieldSelector selects what k is for, apart from the namespace.
func (k key) fieldSelector() string {
	if k.place.Name == "" {
		return k.fields
	}
	byName := fields.OneTermEqualSelector("metadata.name", k.place.Name).String()
	if k.fields == "" {
		return byName
	}
	return k.fields + "," + byName
}

// target is what the informer lists and watches.
func (k key) target(b Backend) listwatch.Target {
	return listwatch.Target{
		Backend: b, Kind: k.gvk, Form: k.form,
		Namespace: k.place.Namespace, Name: k.place.Name, Labels: k.labels, Fields: k.fieldSelector(),
	}
}

// kind is the kind in the form Kind.version.group.
func (k key) kind() string {
	return strings.TrimSuffix(k.gvk.Kind+"."+k.gvk.Version+"."+k.gvk.Group, ".")
}

// String says in words what of the kind is kept, and as what. It is empty for all objects as usual.
func (k key) String() string {
	var words []string
	add := func(format, value string) {
		if value != "" {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	if k.form != listwatch.Typed {
		words = append(words, k.form.String())
	}
	add("name %s", k.place.Name)
	add("namespace %s", k.place.Namespace)
	add("labels %s", k.labels)
	add("fields %s", k.fields)
	if k.transform != nil {
		add("transform %s", k.transform.name)
	}
	if k.keepManagedFields {
		words = append(words, "with managedFields")
	}
	if k.foreign != nil {
		words = append(words, k.foreign.String())
	}
	return strings.Join(words, ", ")
}

// places is what the scope consists of now. What cannot be a namespace or a name is left out, and is an error: it must not make
// the scope wider than somebody meant.
func (s Scope) places() (p map[place]bool, wrong error) {
	p = map[place]bool{}
	switch {
	case selectsNothing(s.Labels) || selectsNothing(s.Fields):
	case s.Namespaces != nil:
		for _, namespace := range s.Namespaces.Elements() {
			if bad := validation.IsDNS1123Label(namespace); namespace != "" && len(bad) > 0 {
				wrong = fmt.Errorf("cache.Scope.Namespaces has %q, which is no namespace: %s", namespace, bad[0])
				continue
			}
			p[place{Namespace: namespace}] = true
		}
		if p[place{}] {
			return map[place]bool{{}: true}, wrong // all namespaces, each object once
		}
	case s.Names != nil:
		for _, name := range s.Names.Elements() {
			if err := nameable(name); err != nil {
				wrong = fmt.Errorf("cache.Scope.Names has %q, %w", storeKey(name), err)
				continue
			}
			p[name] = true
		}
	default:
		p[place{}] = true
	}
	return p, wrong
}

// nameable says whether an object can have this name.
func nameable(name types.NamespacedName) error {
	if name.Name == "" {
		return errors.New("which has no name")
	}
	if bad := content.IsPathSegmentName(name.Name); len(bad) > 0 {
		return fmt.Errorf("which is no name: it %s", bad[0])
	}
	if bad := validation.IsDNS1123Label(name.Namespace); name.Namespace != "" && len(bad) > 0 {
		return fmt.Errorf("whose namespace is none: %s", bad[0])
	}
	return nil
}

// selectsNothing recognizes labels.Nothing and fields.Nothing, whose text is that of everything.
func selectsNothing(selector interface {
	Empty() bool
	String() string
}) bool {
	v := reflect.ValueOf(selector)
	return v.IsValid() && (v.Kind() != reflect.Pointer || !v.IsNil()) && !selector.Empty() && selector.String() == ""
}

// changes says whether places may change.
func (s Scope) changes() bool { return s.Namespaces != nil || s.Names != nil }

// tell has f called after each change of places, for who. A nil f ends that.
func (s Scope) tell(who any, f func()) {
	switch {
	case s.Namespaces != nil:
		s.Namespaces.tell(who, f)
	case s.Names != nil:
		s.Names.tell(who, f)
	}
}

// kindOf finds the kind of an example of T, in the scheme or the scope, and says what is wrong with it.
func (s Scope) kindOf(scheme *runtime.Scheme, example Object) (schema.GroupVersionKind, error) {
	if f := formOf(reflect.TypeOf(example)); f != listwatch.Typed {
		if s.Kind.Kind == "" || s.Kind.Version == "" {
			return s.Kind, errors.New("the type says no kind; give cache.Scope.Kind, with its version")
		}
		return s.Kind, nil
	}
	kinds, _, err := scheme.ObjectKinds(example)
	if err != nil {
		return s.Kind, fmt.Errorf("the scheme does not know the type; add its package with AddToScheme: %w", err)
	}
	kind := kinds[0]
	for _, k := range kinds {
		if k == s.Kind {
			kind = k
		}
	}
	if s.Kind != (schema.GroupVersionKind{}) && s.Kind != kind {
		return kind, fmt.Errorf("cache.Scope.Kind is %s, but the type is of %s; leave it empty", s.Kind, kind)
	}
	if list := listwatch.ListKind(kind); !scheme.Recognizes(list) {
		return kind, fmt.Errorf("the scheme knows the type but not %s, which lists need; add it to the scheme", list.Kind)
	}
	return kind, nil
}

// selects reports whether there are selectors.
func (k *key) selects() bool { return k.labels != "" || k.fields != "" }

// trim drops what is not kept of an object, and applies the transform.
func (k *key) trim(o Object) error {
	switch k.form {
	case listwatch.Typed: // lists of custom resources have it, watches do not
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	case listwatch.Metadata: // it comes as a PartialObjectMetadata
		o.GetObjectKind().SetGroupVersionKind(k.gvk)
	}
	if !k.keepManagedFields {
		o.SetManagedFields(nil)
	}
	if k.transform == nil {
		return nil
	}
	return k.transform.run(o)
}

// foreign is an informer that was not made here. It makes a key of its own: nothing else may be shared with it.
type foreign struct {
	shared toolscache.SharedIndexInformer
	of     reflect.Type // of its objects
	ours   bool         // to run; the host program's are not
}

func (f *foreign) String() string {
	if f.ours {
		return "made by its caller"
	}
	return "adopted"
}

// misfit says that the objects in the store are of another type.
func (f *foreign) misfit() error {
	for _, name := range f.shared.GetStore().ListKeys() {
		obj, found, err := f.shared.GetStore().GetByKey(name)
		if err == nil && found {
			return misfit(f.of, obj)
		}
	}
	return nil
}

// misfit says that an object is of another type.
func misfit(t reflect.Type, obj any) error {
	if of := reflect.TypeOf(obj); of == t || t.Kind() == reflect.Interface && of.Implements(t) {
		return nil
	}
	return fmt.Errorf("the informer was given for %s, but it holds %T; name that type, or give another informer", t, obj)
}
