// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/packed"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// decoder decodes custom resources and packed objects one by one. A CRD's schema may allow objects
// that do not fit the Go type. decoder records these and keeps their last known state; client-go
// would fail the whole list or watch.
type decoder struct {
	*Target

	broken   *Broken
	informer Informer
	part     *portion // nil: everything
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

func (d *decoder) decode(f wire.Format, raw []byte) (o object.Object, err error) {
	if d.Codec != nil {
		packed, err := d.Codec.Read(f, raw)
		if err != nil {
			return nil, err // not a nil *packed.Object
		}
		return packed, nil
	}
	obj, err := d.Backend.Scheme().New(d.Kind)
	if err != nil {
		return nil, err
	}
	o, ok := obj.(object.Object)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", obj)
	}
	defer func() {
		if p := recover(); p != nil { // in a method UnmarshalJSON
			err = fmt.Errorf("it cannot be decoded: panic: %v", p)
		}
	}()
	if err := utiljson.Unmarshal(raw, o); err != nil {
		return nil, fmt.Errorf("it cannot be decoded: %w", err)
	}
	return o, nil
}

// decodeEach decodes the objects of a list that failed as a whole. If the list itself is broken, it
// returns that error.
func (d *decoder) decodeEach(result rest.Result, list runtime.Object, whole error) (runtime.Object, error) {
	raw, err := result.Raw()
	if err != nil {
		return nil, errors.Join(whole, err)
	}
	var parts struct {
		metav1.ListMeta `json:"metadata"`

		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return nil, whole // not JSON
	}
	var items []runtime.Object
	for _, item := range parts.Items {
		if o := d.item(wire.JSON, item); o != nil {
			items = append(items, o)
		}
	}
	l, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	l.SetResourceVersion(parts.ResourceVersion)
	l.SetContinue(parts.Continue)
	l.SetRemainingItemCount(parts.RemainingItemCount)
	return list, meta.SetList(list, items)
}

// item decodes an item of a list. It returns the stored state of an object that cannot be decoded,
// or nil. It returns nil for an object that is not in the part.
func (d *decoder) item(f wire.Format, raw []byte) runtime.Object {
	if !d.part.keepsBytes(f, raw) {
		return nil
	}
	o, err := d.decode(f, raw)
	if err == nil {
		if !d.part.keeps(o) {
			return nil
		}
		return d.prepared(o)
	}
	name, known := d.lastKnown(f, raw, err)
	d.broken.misfit(name)
	if known == nil {
		return nil
	}
	return known
}

// prepared transforms a packed object before it waits for the store, to free the received bytes
// early. With a part, client-go does it later: the slot depends on the received object.
func (d *decoder) prepared(o object.Object) object.Object {
	if p, ok := o.(*packed.Object); ok && d.part == nil {
		return p.Prepared()
	}
	return o
}

// lastKnown returns the metadata of an object that cannot be decoded, and its stored state or nil.
func (d *decoder) lastKnown(f wire.Format, raw []byte, why error) (name *Misfit, known object.Object) {
	name = identify(f, raw, why)
	key, _ := toolscache.MetaNamespaceKeyFunc(name)
	stored, found, err := d.informer.Store().GetByKey(key)
	if err != nil || !found {
		return name, nil
	}
	if known, _ = stored.(object.Object); known == nil || known.GetUID() != name.GetUID() {
		return name, nil
	}
	// It will be trimmed while others read the stored one.
	copied, _ := known.DeepCopyObject().(object.Object)
	return name, copied
}

// bookmark returns an object that moves the store past an object that cannot be decoded.
func (d *decoder) bookmark(version string) object.Object {
	if version == "" {
		return nil
	}
	here := &metav1.PartialObjectMetadata{}
	here.ResourceVersion = version
	return d.metadataOf(here.ObjectMeta)
}

func (d *decoder) metadataOf(m metav1.ObjectMeta) object.Object {
	raw, err := json.Marshal(map[string]any{"metadata": m})
	if err != nil {
		return nil
	}
	o, err := d.decode(wire.JSON, raw)
	if err != nil {
		return nil
	}
	return o
}
