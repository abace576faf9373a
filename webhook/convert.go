// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
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
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/client"
)

// AddConversion adds version S of a kind with functions that convert it to version H and back. H is
// the hub, the same for all versions of a kind. Two other versions convert to each other through
// it.
//
//	webhook.AddConversion(hooks,
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
func AddConversion[S, H client.Object](w *Webhooks, toHub func(from S, to H) error, fromHub func(from H, to S) error) {
	w.add(fmt.Sprintf("AddConversion[%s, %s]", reflect.TypeFor[S](), reflect.TypeFor[H]()), func() error {
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

		Metadata shared `json:"metadata"`
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
	meta shared
	body []byte
}

func (o original) doing(apiVersion string) string {
	var key struct{ Namespace, Name string }
	_ = json.Unmarshal(o.meta, &key)
	name := key.Name
	if key.Namespace != "" {
		name = key.Namespace + "/" + name
	}
	return fmt.Sprintf("webhook: convert %s %q from %s to %s", o.kind.Kind, name, o.kind.GroupVersion(), apiVersion)
}

func (w *Webhooks) convert(ctx context.Context, o original, to schema.GroupVersion) ([]byte, error) {
	h, ok := w.hub(o.kind.GroupKind())
	if !ok {
		return nil, fmt.Errorf("no conversion has the kind %s; add its versions with webhook.AddConversion", o.kind.GroupKind())
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
	size := int64(1+len(steps))*w.sizes.of(o.body, reflect.TypeOf(obj)) + w.sizes.of(o.meta, reflect.TypeFor[members]())
	memory, err := w.reserve(ctx, size+10*int64(len(o.body))) // copies of the text
	if err != nil {
		return nil, err
	}
	defer memory.give()
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
			return nil, fmt.Errorf("version %s is unknown, there are %s as hub and %q; add it with webhook.AddConversion",
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

// members are the fields of a JSON object that does not change.
type members map[string]shared

func (f members) encode() []byte {
	size := 2
	for name, value := range f {
		size += len(name) + len(value) + 10
	}
	text := bytes.NewBuffer(make([]byte, 0, size))
	before := byte('{')
	for _, name := range slices.Sorted(maps.Keys(f)) {
		text.WriteByte(before)
		before = ','
		key, _ := encode(name) // strings can always be written
		text.Write(key)
		text.WriteByte(':')
		if value := f[name]; value != nil {
			text.Write(value)
		} else {
			text.WriteString("null")
		}
	}
	if len(f) == 0 {
		return []byte("{}")
	}
	text.WriteByte('}')
	return text.Bytes()
}

// encode keeps the original metadata, except labels and annotations.
func (o original) encode(obj client.Object) ([]byte, error) {
	m := metaOf(obj)
	meta := members{}
	if len(o.meta) > 0 {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(o.meta, &meta); err != nil {
			return nil, fmt.Errorf("the metadata is not a JSON object: %w", err)
		}
	}
	for field, value := range map[string]map[string]string{"labels": m.Labels, "annotations": m.Annotations} {
		delete(meta, field)
		if len(value) > 0 {
			meta[field], _ = encode(value)
		}
	}
	*m = metav1.ObjectMeta{}
	body, err := encode(obj)
	if err != nil {
		return nil, fmt.Errorf("the converted object cannot be written as JSON: %w", err)
	}
	var whole members
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &whole); err != nil {
		return nil, fmt.Errorf("the converted object is not a JSON object: %w", err)
	}
	whole["metadata"] = meta.encode()
	return whole.encode(), nil
}
