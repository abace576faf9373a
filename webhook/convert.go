// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/client"
)

// Convert adds version S of a kind with functions that convert it to version H and back. H is the
// hub, the same for all versions of a kind. Two other versions convert to each other through it.
//
//	webhook.Convert(hooks,
//		func(from *v1alpha1.Website, to *v1.Website) error { to.Spec.Replicas = from.Spec.Size; return nil },
//		func(from *v1.Website, to *v1alpha1.Website) error { to.Spec.Size = from.Spec.Replicas; return nil })
//
// A function fills its second argument, which has a copy of the metadata and is empty otherwise. It
// may change labels and annotations, but no other metadata: the API server does not allow it. An
// annotation can keep values for which the other version has no field. webhooktest.RoundTrip finds
// fields that get lost.
//
// An error or a panic fails the whole request, with the name of the object. The functions need no
// cache and no leader: the API server converts before the operator is ready, and on standbys. They
// may run concurrently.
//
// Validate returns the mistakes: a type that the scheme does not have, two hubs of a kind, a
// version that was added twice.
func Convert[S, H client.Object](w *Webhooks, toHub func(from S, to H) error, fromHub func(from H, to S) error) {
	w.add(fmt.Sprintf("Convert[%s, %s]", reflect.TypeFor[S](), reflect.TypeFor[H]()), func() error {
		from, err := convertible[S](w.o.Scheme)
		if err != nil {
			return err
		}
		to, err := convertible[H](w.o.Scheme)
		switch {
		case err != nil:
			return err
		case toHub == nil || fromHub == nil:
			return errors.New("a function is nil; give one for each direction")
		}
		return w.addSpokeLocked(from, to, spoke{erased(toHub), erased(fromHub)})
	})
}

func convertible[T client.Object](scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	k, err := kindOf[T](scheme)
	if err == nil && metaOf(k.zero()) == nil {
		err = fmt.Errorf("%s does not embed metav1.ObjectMeta; give a typed API object", reflect.TypeFor[T]())
	}
	return k.GroupVersionKind, err
}

func erased[F, T client.Object](f func(F, T) error) func(from, to client.Object) error {
	return func(from, to client.Object) error { return f(from.(F), to.(T)) } //nolint:forcetypeassert // made by the scheme
}

// hub is a kind with several versions. It does not change.
type hub struct {
	version string           // of the hub
	spokes  map[string]spoke // by version
}

// spoke is another version, with its functions.
type spoke struct {
	toHub, fromHub func(from, to client.Object) error
}

func (w *Webhooks) addSpokeLocked(from, to schema.GroupVersionKind, s spoke) error {
	kind := to.GroupKind()
	switch {
	case from.GroupKind() != kind:
		return fmt.Errorf("%s and %s are different kinds; give two versions of one", from.GroupKind(), kind)
	case from.Version == to.Version:
		return fmt.Errorf("both are version %s; the hub needs no conversion", to.Version)
	}
	h, known := w.hubs[kind]
	switch _, twice := h.spokes[from.Version]; {
	case known && h.version != to.Version:
		return fmt.Errorf("the hub of %s is %s already; give all versions of a kind the same hub", kind, h.version)
	case twice:
		return fmt.Errorf("version %s has been added before; add each version once", from.Version)
	}
	if len(w.hubs) == 0 {
		e := &endpoint{path: conversionPath, name: "convert", conversion: true, answer: newConverter(w).answer}
		if err := w.mountLocked(e); err != nil {
			return err
		}
		w.hubs = map[schema.GroupKind]hub{}
	}
	spokes := map[string]spoke{from.Version: s}
	maps.Copy(spokes, h.spokes)
	w.hubs[kind] = hub{to.Version, spokes}
	return nil
}

func metaOf(obj client.Object) *metav1.ObjectMeta {
	accessor, ok := obj.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil
	}
	m, _ := accessor.GetObjectMeta().(*metav1.ObjectMeta)
	return m
}

func (w *Webhooks) hub(kind schema.GroupKind) (h hub, ok bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	h, ok = w.hubs[kind]
	return h, ok
}

func (w *Webhooks) converted() []schema.GroupKind {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(w.hubs), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) })
}

// Scheme returns the scheme of Options.
func (w *Webhooks) Scheme() *runtime.Scheme { return w.o.Scheme }

// Conversion is a version of a kind that Convert added.
type Conversion struct {
	// Spoke is the version. It converts to and from Hub.
	Spoke, Hub schema.GroupVersionKind
}

// Conversions returns what Convert added, sorted. It is for tests and tools.
func (w *Webhooks) Conversions() (all []Conversion) {
	for _, kind := range w.converted() {
		h, _ := w.hub(kind)
		for _, version := range slices.Sorted(maps.Keys(h.spokes)) {
			all = append(all, Conversion{kind.WithVersion(version), kind.WithVersion(h.version)})
		}
	}
	return all
}

// ConvertObject converts one object, in JSON, as a request of the API server does. apiVersion is
// the target, such as web.example.com/v1. An object of that version is returned as it is. The error
// names the object. A panic is logged with its stack, by the logger of ctx.
func (w *Webhooks) ConvertObject(ctx context.Context, object []byte, apiVersion string) ([]byte, error) {
	var head struct {
		metav1.TypeMeta `json:",inline"`

		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(object, &head); err != nil {
		return nil, fmt.Errorf("webhook: an object of a conversion is not JSON with a kind and metadata: %w", err)
	}
	if head.Kind == "" || head.APIVersion == "" {
		return nil, errors.New("webhook: an object of a conversion has no kind or no apiVersion")
	}
	o := original{kind: schema.FromAPIVersionAndKind(head.APIVersion, head.Kind), meta: head.Metadata, body: object}
	to, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || to.Version == "" {
		return nil, fmt.Errorf("%s: the version is not like web.example.com/v1", o.doing(apiVersion))
	}
	if o.kind.GroupVersion() == to {
		return object, nil
	}
	converted, err := w.convert(ctx, o, to)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.doing(apiVersion), err)
	}
	return converted, nil
}

type original struct {
	kind schema.GroupVersionKind
	meta map[string]json.RawMessage
	body []byte
}

func (o original) doing(apiVersion string) string {
	var key types.NamespacedName
	_ = json.Unmarshal(o.meta["namespace"], &key.Namespace)
	_ = json.Unmarshal(o.meta["name"], &key.Name)
	name := key.Name
	if key.Namespace != "" {
		name = key.String()
	}
	return fmt.Sprintf("webhook: convert %s %q from %s to %s", o.kind.Kind, name, o.kind.GroupVersion(), apiVersion)
}

func (w *Webhooks) convert(ctx context.Context, o original, to schema.GroupVersion) ([]byte, error) {
	h, ok := w.hub(o.kind.GroupKind())
	if !ok {
		return nil, fmt.Errorf("no conversion has the kind %s; add its versions with webhook.Convert", o.kind.GroupKind())
	}
	if o.kind.Group != to.Group {
		return nil, errors.New("the group differs; a conversion changes only the version")
	}
	steps, err := h.path(o.kind.Version, to.Version)
	if err != nil {
		return nil, err
	}
	obj, err := w.newObject(o.kind)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.body, obj); err != nil {
		return nil, fmt.Errorf("the object does not fit the Go type %T: %w", obj, err)
	}
	for _, s := range steps {
		next, err := w.newObject(o.kind.GroupKind().WithVersion(s.to))
		if err != nil {
			return nil, err
		}
		if err := convertWith(ctx, s.convert, obj, next); err != nil {
			return nil, err
		}
		obj = next
	}
	obj.GetObjectKind().SetGroupVersionKind(o.kind.GroupKind().WithVersion(to.Version))
	return o.encode(obj)
}

type step struct {
	to      string
	convert func(from, to client.Object) error
}

// path returns the steps between two different versions.
func (h hub) path(from, to string) (steps []step, err error) {
	for _, version := range []string{from, to} {
		if _, ok := h.spokes[version]; !ok && version != h.version {
			return nil, fmt.Errorf("version %s is unknown, there are %s as hub and %q; add it with webhook.Convert",
				version, h.version, slices.Sorted(maps.Keys(h.spokes)))
		}
	}
	if from != h.version {
		steps = append(steps, step{h.version, h.spokes[from].toHub})
	}
	if to != h.version {
		steps = append(steps, step{to, h.spokes[to].fromHub})
	}
	return steps, nil
}

func (w *Webhooks) newObject(kind schema.GroupVersionKind) (client.Object, error) {
	made, err := w.o.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	obj, ok := made.(client.Object)
	if !ok || metaOf(obj) == nil {
		return nil, fmt.Errorf("%T has no metadata", made)
	}
	return obj, nil
}

// convertWith runs a user's function with a copy of the metadata. It then restores all but labels
// and annotations.
func convertWith(ctx context.Context, convert func(from, to client.Object) error, from, to client.Object) (err error) {
	defer recovered(ctx, &err)
	before := metaOf(from).DeepCopy()
	before.DeepCopyInto(metaOf(to))
	if err := convert(from, to); err != nil {
		return err
	}
	after := metaOf(to)
	if !reflect.DeepEqual(*after, metav1.ObjectMeta{}) { // else the whole object was replaced
		before.Labels, before.Annotations = after.Labels, after.Annotations
	}
	*after = *before
	return nil
}

// encode keeps the original metadata, except labels and annotations.
func (o original) encode(obj client.Object) ([]byte, error) {
	m := metaOf(obj)
	meta := maps.Clone(o.meta)
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	for field, value := range map[string]map[string]string{"labels": m.Labels, "annotations": m.Annotations} {
		delete(meta, field)
		if len(value) > 0 {
			meta[field], _ = json.Marshal(value) // strings can always be written
		}
	}
	*m = metav1.ObjectMeta{}
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("the converted object cannot be written as JSON: %w", err)
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		return nil, fmt.Errorf("the converted object is not a JSON object: %w", err)
	}
	if whole["metadata"], err = json.Marshal(meta); err != nil {
		return nil, err
	}
	return json.Marshal(whole)
}
