// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// decoder reads objects one by one. A CRD's schema may allow objects that do not fit the Go type.
// decoder records these and keeps their last known state; client-go would fail the whole list or
// watch.
type decoder struct {
	*Target

	broken   *Broken
	informer Informer
	part     *portion // nil: everything
	late     bool     // the objects of a list are prepared later: they become events
}

// known is an object that the store has, or has had: it is not prepared again.
type known struct{ object.Object }

// knownAt returns a copy of a stored object with the version of its delete, which the store must
// reach.
func knownAt(o object.Object, version string) object.Object {
	last, _ := o.DeepCopyObject().(object.Object)
	last.SetResourceVersion(version)
	return known{last}
}

func (d *decoder) speaksProtobuf() bool {
	obj, err := d.Backend.Scheme().New(d.Kind)
	if err != nil {
		return false
	}
	_, ok := obj.(interface {
		Marshal() ([]byte, error)
		Unmarshal(data []byte) error
	})
	return ok
}

// item reads an item of a list. It returns the stored state of an object that cannot be decoded,
// or nil. It returns nil for an object that is not in the part.
func (d *decoder) item(f wire.Format, raw []byte) runtime.Object {
	if !d.part.keepsBytes(f, raw) {
		return nil
	}
	o, err := d.Codec.Read(f, raw)
	if err == nil {
		if !d.part.keeps(o) {
			return nil
		}
		return d.prepared(o)
	}
	name, last := d.lastKnown(f, raw, err)
	d.broken.misfit(name)
	switch {
	case last == nil:
		return nil
	case d.late:
		return known{last}
	}
	return last
}

// prepared returns what is stored instead of an object of a list.
func (d *decoder) prepared(o object.Object) object.Object {
	if d.late {
		return o
	}
	return d.informer.Prepare(o)
}

// filter does for a list of decoded objects what item does for each.
func (d *decoder) filter(list runtime.Object) error {
	items, err := meta.ExtractListWithAlloc(list)
	if err != nil {
		return err
	}
	ours := make([]runtime.Object, 0, len(items))
	for _, item := range items {
		if o, ok := item.(object.Object); ok && d.part.keeps(o) {
			ours = append(ours, d.prepared(o))
		}
	}
	return meta.SetList(list, ours)
}

// lastKnown returns the metadata of an object that cannot be decoded, and its stored state or nil.
func (d *decoder) lastKnown(f wire.Format, raw []byte, why error) (name *Misfit, last object.Object) {
	name = identify(f, raw, why)
	key, _ := toolscache.MetaNamespaceKeyFunc(name)
	stored, found, err := d.informer.Store().GetByKey(key)
	if err != nil || !found {
		return name, nil
	}
	if last, _ = stored.(object.Object); last == nil || last.GetUID() != name.GetUID() {
		return name, nil
	}
	return name, last
}

func (d *decoder) metadataOf(m metav1.ObjectMeta) object.Object {
	if raw, err := json.Marshal(map[string]any{"metadata": m}); err == nil {
		if o, err := d.Codec.Read(wire.JSON, raw); err == nil {
			return o
		}
	}
	o := d.Codec.Example() // its type refuses an object with only metadata
	o.SetNamespace(m.Namespace)
	o.SetName(m.Name)
	o.SetUID(m.UID)
	o.SetResourceVersion(m.ResourceVersion)
	o.SetLabels(m.Labels)
	o.SetOwnerReferences(m.OwnerReferences)
	return o
}

// Misfit is an object that cannot be decoded, with the metadata that could be read: identity,
// version, labels and owners.
type Misfit struct {
	metav1.PartialObjectMetadata

	// AnyLabels and AnyOwners report that these could not be read.
	AnyLabels, AnyOwners bool
	// Err is why the object cannot be decoded.
	Err error
}

// identify reads each field by itself, because other metadata may be broken.
func identify(f wire.Format, raw []byte, why error) *Misfit {
	m := &Misfit{Err: why}
	if f == wire.Protobuf {
		err := m.Unmarshal(raw) // best effort
		m.TypeMeta, m.ManagedFields, m.Annotations = metav1.TypeMeta{}, nil, nil
		m.AnyLabels, m.AnyOwners = err != nil, err != nil
		return m
	}
	var o struct {
		Metadata struct {
			Namespace       string          `json:"namespace"`
			Name            string          `json:"name"`
			UID             types.UID       `json:"uid"`
			ResourceVersion string          `json:"resourceVersion"`
			Labels          json.RawMessage `json:"labels"`
			OwnerReferences json.RawMessage `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if utiljson.Unmarshal(raw, &o) != nil && o.Metadata.Name == "" {
		found, _ := wire.Read(f, raw, wire.Options{}) // up to what is no JSON
		m.Namespace, m.Name, m.UID, m.ResourceVersion = string(found.Namespace), string(found.Name), types.UID(found.UID), string(found.ResourceVersion)
		m.AnyLabels, m.AnyOwners = true, true
		return m
	}
	m.Namespace, m.Name, m.UID, m.ResourceVersion = o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID, o.Metadata.ResourceVersion
	m.AnyLabels = !into(&m.Labels, o.Metadata.Labels)
	m.AnyOwners = !into(&m.OwnerReferences, o.Metadata.OwnerReferences)
	return m
}

func into[T any](field *T, raw json.RawMessage) bool {
	if len(raw) == 0 {
		return true
	}
	var value T
	if utiljson.Unmarshal(raw, &value) != nil {
		return false
	}
	*field = value
	return true
}
