// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
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

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// Scope selects the objects of a handle, and their form in the cache. The zero value selects all
// objects of a kind. Handles of equal scopes share their informers.
type Scope struct {
	// Kind is required if T is *unstructured.Unstructured, *metav1.PartialObjectMetadata or
	// [Object]. For any other T, leave it empty: the scheme has the kind. Another kind than the
	// scheme's is an error.
	Kind schema.GroupVersionKind
	// Namespaces limits a namespaced kind to a set of namespaces, with one informer for each. The
	// program then needs only a Role in each of them. "" selects all. State and Stale report
	// invalid ones, which are ignored. Default: [Options].Namespaces, or else all.
	Namespaces *Set[string]
	// Names limits the scope to single objects, with one informer for each. The program then needs
	// only the right to these names. State and Stale report invalid ones, which are ignored. Do not
	// set Namespaces, too. Default: all.
	Names *Set[types.NamespacedName]
	// Labels selects by labels, at the API server. For the handle's sources, an object that begins
	// to match is a create, and one that no longer matches a delete. labels.Nothing() selects
	// nothing. Default: [Options].Labels, or else all.
	Labels labels.Selector
	// Fields selects by fields, at the API server. All kinds support metadata.name and
	// metadata.namespace, and some a few more. fields.Nothing() selects nothing. Default: all.
	Fields fields.Selector
	// Slots limits the scope to the objects of some slots. The informer drops other objects that
	// the API server sends, by their metadata. Handles with another *Slots do not share informers.
	// Default: all objects.
	Slots *Slots
	// SlotOwner makes the key of an object's controller count, not the object's own: of its owner
	// reference of this kind, in any version, with controller: true. So objects live where their
	// owner lives. Objects without such a reference are dropped. Without Slots it has no effect.
	// Default: the key of the object.
	SlotOwner schema.GroupVersionKind
	// Transform changes objects before the cache keeps them, for example to drop unused fields.
	// Handles with another *Transform do not share informers. Default: [Options].Transform if it is
	// for the type.
	Transform *Transform
	// KeepManagedFields keeps metadata.managedFields, up to 60 % of an object, which the Extract
	// functions of apply configurations need. Default: false.
	KeepManagedFields bool
	// Storage is how the cache stores the objects, unless they are metadata. Handles with another
	// Storage do not share informers. Default: DefaultStorage.
	Storage Storage
	// Resync is how often each source of the handle delivers every object again, unchanged, give or
	// take a tenth. NoResync is never; other negative values are errors. Default: [Options].Resync,
	// or else never.
	Resync time.Duration

	ownStorage bool // Storage differs from Options
	inherited  bool // Namespaces come from Options, and a cluster-scoped kind ignores them
}

// NoResync is a [Scope].Resync that switches off the default.
const NoResync time.Duration = -1

// Validate returns an error that names the wrong field.
func (s Scope) Validate() error {
	switch {
	case s.Namespaces != nil && s.Names != nil:
		return errors.New("cache.Scope has both Namespaces and Names; set only Names, which include the namespace")
	case s.Resync < 0 && s.Resync != NoResync:
		return fmt.Errorf("cache.Scope.Resync is %s, it must not be negative", s.Resync)
	case s.SlotOwner != (schema.GroupVersionKind{}) && (s.SlotOwner.Kind == "" || s.SlotOwner.Version == ""):
		return fmt.Errorf("cache.Scope.SlotOwner is %q; set its kind and version", s.SlotOwner.String())
	}
	if s.Slots != nil {
		if err := s.Slots.validate(); err != nil {
			return err
		}
	}
	return s.Storage.validate("cache.Scope.Storage")
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

// place is what one informer keeps: everything, a namespace, or one object.
type place = types.NamespacedName

// key identifies an informer: declarations with equal keys share it.
type key struct {
	gvk               schema.GroupVersionKind
	form              listwatch.Form
	place             place
	labels, fields    string
	slots             *Slots
	slotOwner         schema.GroupVersionKind
	transform         *Transform
	keepManagedFields bool
	storage           Storage
	ownStorage        bool     // not the one of Options
	cluster           string   // of Options, for messages
	foreign           *foreign // set for informers that this package did not make
}

func (s Scope) key(gvk schema.GroupVersionKind, f listwatch.Form) key {
	if s.Slots == nil {
		s.SlotOwner = schema.GroupVersionKind{}
	}
	k := key{gvk: gvk, form: f, slots: s.Slots, slotOwner: s.SlotOwner, transform: s.Transform, keepManagedFields: s.KeepManagedFields}
	k.storage, k.ownStorage = s.storageFor(f)
	if s.Labels != nil {
		k.labels = s.Labels.String()
	}
	if s.Fields != nil {
		k.fields = s.Fields.String()
	}
	return k
}

func (k key) at(p place) key {
	k.place = p
	return k
}

func (k key) fieldSelector() string {
	if k.place.Name == "" {
		return k.fields
	}
	byName := fields.OneTermEqualSelector("metadata.name", k.place.Name).String()
	return strings.TrimPrefix(k.fields+","+byName, ",")
}

func (k key) target(b Backend) listwatch.Target {
	return listwatch.Target{
		Backend: b, Kind: k.gvk, Form: k.form, Further: k.cluster != "",
		Namespace: k.place.Namespace, Name: k.place.Name, Labels: k.labels, Fields: k.fieldSelector(),
	}
}

func (k key) kind() string {
	return strings.TrimSuffix(k.gvk.Kind+"."+k.gvk.Version+"."+k.gvk.Group, ".")
}

func (k key) String() string {
	var words []string
	add := func(format, value string) {
		if value != "" {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add("cluster %s", k.cluster)
	if k.form != listwatch.Typed {
		words = append(words, k.form.String())
	}
	add("name %s", k.place.Name)
	add("namespace %s", k.place.Namespace)
	add("labels %s", k.labels)
	add("fields %s", k.fields)
	if k.slots != nil && k.slotOwner.Kind == "" {
		words = append(words, "its slots")
	}
	add("the slots of each %s", k.slotOwner.Kind)
	if k.transform != nil {
		add("transform %s", k.transform.name)
	}
	if k.keepManagedFields {
		words = append(words, "with managedFields")
	}
	if k.ownStorage {
		words = append(words, k.storage.String())
	}
	if k.foreign != nil {
		words = append(words, k.foreign.String())
	}
	return strings.Join(words, ", ")
}

// selection is for hook.InformerState.
func (k key) selection() string {
	k.cluster, k.place, k.ownStorage = "", place{}, false
	return k.String()
}

// places returns the current places of the scope. It leaves out invalid namespaces and names, and
// returns an error for them: they must not widen the scope.
func (s Scope) places() (p map[place]bool, wrong error) {
	p = map[place]bool{}
	switch {
	case selectsNothing(s.Labels) || selectsNothing(s.Fields):
	case s.Namespaces != nil:
		for _, namespace := range s.Namespaces.Elements() {
			if bad := badNamespace(namespace); bad != "" {
				wrong = fmt.Errorf("cache.Scope.Namespaces has %q, which is not a namespace: %s", namespace, bad)
				continue
			}
			p[place{Namespace: namespace}] = true
		}
		if p[place{}] {
			return map[place]bool{{}: true}, wrong // each object once
		}
	case s.Names != nil:
		for _, name := range s.Names.Elements() {
			if err := nameable(name); err != nil {
				wrong = fmt.Errorf("cache.Scope.Names has %q, %w", object.Name(name), err)
				continue
			}
			p[name] = true
		}
	default:
		p[place{}] = true
	}
	return p, wrong
}

func nameable(name types.NamespacedName) error {
	if name.Name == "" {
		return errors.New("which has no name")
	}
	if bad := content.IsPathSegmentName(name.Name); len(bad) > 0 {
		return fmt.Errorf("which is not a name: it %s", bad[0])
	}
	if bad := badNamespace(name.Namespace); bad != "" {
		return fmt.Errorf("whose namespace is invalid: %s", bad)
	}
	return nil
}

// badNamespace returns what is wrong with a namespace. "" is all namespaces.
func badNamespace(name string) string {
	if bad := validation.IsDNS1123Label(name); name != "" && len(bad) > 0 {
		return bad[0]
	}
	return ""
}

// selectsNothing recognizes labels.Nothing and fields.Nothing. Their strings select everything.
func selectsNothing(selector interface {
	Empty() bool
	String() string
}) bool {
	return !argument.IsNil(selector) && !selector.Empty() && selector.String() == ""
}

func (s Scope) changes() bool { return s.Namespaces != nil || s.Names != nil }

func (s Scope) tell(who any, f func()) {
	switch {
	case s.Namespaces != nil:
		s.Namespaces.tell(who, f)
	case s.Names != nil:
		s.Names.tell(who, f)
	}
}

func (s Scope) kindOf(scheme *runtime.Scheme, example Object) (schema.GroupVersionKind, error) {
	if f := formOf(reflect.TypeOf(example)); f != listwatch.Typed {
		if s.Kind.Kind == "" || s.Kind.Version == "" {
			return s.Kind, errors.New("the type has no kind; set cache.Scope.Kind, with its version")
		}
		return s.Kind, nil
	}
	kinds, err := object.Kinds(scheme, example)
	if err != nil {
		return s.Kind, err
	}
	kind := kinds[0]
	if slices.Contains(kinds, s.Kind) {
		kind = s.Kind
	}
	if !s.Kind.Empty() && s.Kind != kind {
		return kind, fmt.Errorf("cache.Scope.Kind is %s, but the type is of %s; leave it empty", s.Kind, kind)
	}
	if list := listwatch.ListKind(kind); !scheme.Recognizes(list) {
		return kind, fmt.Errorf("the scheme knows the type but not %s, which lists need; add it to the scheme", list.Kind)
	}
	return kind, nil
}

func (k *key) selects() bool { return k.labels != "" || k.fields != "" }

// selectsByObject reports whether an object's content decides whether it is kept.
func (k *key) selectsByObject() bool { return k.selects() || k.slotOwner.Kind != "" }

func (k *key) trim(o Object) error {
	switch k.form {
	case listwatch.Typed: // lists of custom resources set it, watches do not
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	case listwatch.Metadata: // the API server sends PartialObjectMetadata
		o.GetObjectKind().SetGroupVersionKind(k.gvk)
	}
	if !k.keepManagedFields {
		o.SetManagedFields(nil)
	}
	return k.change(o)
}

// change applies the transform, if any.
func (k *key) change(o Object) error {
	if k.transform == nil {
		return nil
	}
	owners := slices.Clone(o.GetOwnerReferences())
	err := k.transform.run(o)
	if k.slotOwner.Kind != "" && !slices.EqualFunc(owners, o.GetOwnerReferences(), func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) {
		o.SetOwnerReferences(owners)
		err = errors.Join(err, fmt.Errorf("the transform %q changed the ownerReferences, which decide about the slot", k.transform.name))
	}
	return err
}

type foreign struct {
	shared    toolscache.SharedIndexInformer
	of        reflect.Type // type of its objects
	ours      bool         // the cache runs it, not the host program
	storeless bool         // shared has only events
}

func (f *foreign) hasStore() bool { return f == nil || !f.storeless }

func (f *foreign) String() string {
	switch {
	case f.ours:
		return "made by its caller"
	case f.storeless:
		return "adopted without a store and without read-your-writes"
	default:
		return "adopted"
	}
}

func (f *foreign) misfit() error {
	for _, name := range f.shared.GetStore().ListKeys() {
		obj, found, err := f.shared.GetStore().GetByKey(name)
		if err == nil && found {
			return misfit(f.of, obj)
		}
	}
	return nil
}

func misfit(t reflect.Type, obj any) error {
	if of := reflect.TypeOf(obj); of == t || t.Kind() == reflect.Interface && of.Implements(t) {
		return nil
	}
	return fmt.Errorf("the informer holds %T, not %s; use that type or another informer", obj, t)
}
