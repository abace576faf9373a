// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

//revive:disable:exported metav1.Object documents these methods

// These getters need no decoding. Their strings are no parts of the bytes: a caller may keep one as
// a key for longer than the object, and a part would keep all bytes in memory.

func (o *Object) GetNamespace() string       { return o.namespace }
func (o *Object) GetName() string            { return strings.Clone(o.name) }
func (o *Object) GetUID() types.UID          { return types.UID(strings.Clone(o.uid)) }
func (o *Object) GetResourceVersion() string { return strings.Clone(o.version) }
func (o *Object) GetGeneration() int64       { return o.generation }

// These getters decode one field of the metadata.

func (o *Object) GetLabels() map[string]string { return o.part(hasLabels, "labels").Labels }
func (o *Object) GetAnnotations() map[string]string {
	return o.part(hasAnnotations, "annotations").Annotations
}
func (o *Object) GetFinalizers() []string { return o.part(hasFinalizers, "finalizers").Finalizers }

func (o *Object) GetOwnerReferences() []metav1.OwnerReference {
	return o.part(hasOwners, "ownerReferences").OwnerReferences
}

// OwnerUIDs implements storage.Record.
func (o *Object) OwnerUIDs() (uids []string, ok bool) {
	if o.has&hasOwners == 0 {
		return nil, true
	}
	if o.format == wire.Protobuf {
		if uids, ok := wire.OwnerUIDs(o.data[o.metaStart:o.metaEnd]); ok {
			for n := range uids {
				uids[n] = strings.Clone(uids[n])
			}
			return uids, true
		}
	}
	m, err := o.read(hasOwners, "ownerReferences")
	for _, ref := range m.OwnerReferences {
		uids = append(uids, string(ref.UID))
	}
	return uids, err == nil
}

// ReadLabels implements storage.Record.
func (o *Object) ReadLabels() (labels map[string]string, ok bool) {
	m, err := o.read(hasLabels, "labels")
	return m.Labels, err == nil
}

func (o *Object) GetDeletionTimestamp() *metav1.Time {
	return o.part(hasDeletion, "deletionTimestamp").DeletionTimestamp
}

func (o *Object) GetDeletionGracePeriodSeconds() *int64 {
	return o.part(hasDeletion, "deletionGracePeriodSeconds").DeletionGracePeriodSeconds
}

func (o *Object) GetCreationTimestamp() metav1.Time {
	return o.part(0, "creationTimestamp").CreationTimestamp
}

func (o *Object) GetGenerateName() string { return o.part(0, "generateName").GenerateName }
func (o *Object) GetSelfLink() string     { return o.part(0, "selfLink").SelfLink } //nolint:staticcheck // the interface has it

func (o *Object) GetManagedFields() []metav1.ManagedFieldsEntry {
	return o.part(0, "managedFields").ManagedFields
}

// part decodes one field of the metadata, unless the object is known not to have it.
func (o *Object) part(has fields, name string) metav1.ObjectMeta {
	// A reader of the object gets the error. Index functions come here under the store's lock, so
	// Refuse is not called.
	m, _ := o.read(has, name)
	return m
}

func (o *Object) read(has fields, name string) (m metav1.ObjectMeta, err error) {
	if has != 0 && o.has&has == 0 {
		return m, nil
	}
	text := wire.Fields(o.format, o.data[o.metaStart:o.metaEnd], name)
	if err := storage.Unmarshal(o.format, text, &m); err != nil {
		return metav1.ObjectMeta{}, err
	}
	return m, nil
}

// Outline implements storage.Record.
func (o *Object) Outline() object.Object {
	obj := o.codec.New()
	obj.SetNamespace(o.GetNamespace())
	obj.SetName(o.GetName())
	obj.SetUID(o.GetUID())
	obj.SetResourceVersion(o.GetResourceVersion())
	obj.SetLabels(o.GetLabels())
	obj.SetOwnerReferences(o.GetOwnerReferences())
	return obj
}

// SetResourceVersion is for the version of a deletion, which is later than the object's.
func (o *Object) SetResourceVersion(version string) {
	o.version = version
	o.derived.Store(nil)
}

// The setters below decode the object and pack it again.

func (o *Object) SetNamespace(s string)    { o.change(func(m metav1.Object) { m.SetNamespace(s) }) }
func (o *Object) SetName(s string)         { o.change(func(m metav1.Object) { m.SetName(s) }) }
func (o *Object) SetUID(uid types.UID)     { o.change(func(m metav1.Object) { m.SetUID(uid) }) }
func (o *Object) SetGenerateName(s string) { o.change(func(m metav1.Object) { m.SetGenerateName(s) }) }
func (o *Object) SetGeneration(n int64)    { o.change(func(m metav1.Object) { m.SetGeneration(n) }) }
func (o *Object) SetSelfLink(s string)     { o.change(func(m metav1.Object) { m.SetSelfLink(s) }) }
func (o *Object) SetCreationTimestamp(t metav1.Time) {
	o.change(func(m metav1.Object) { m.SetCreationTimestamp(t) })
}

func (o *Object) SetDeletionTimestamp(t *metav1.Time) {
	o.change(func(m metav1.Object) { m.SetDeletionTimestamp(t) })
}

func (o *Object) SetDeletionGracePeriodSeconds(n *int64) {
	o.change(func(m metav1.Object) { m.SetDeletionGracePeriodSeconds(n) })
}

func (o *Object) SetLabels(l map[string]string) { o.change(func(m metav1.Object) { m.SetLabels(l) }) }

func (o *Object) SetAnnotations(a map[string]string) {
	o.change(func(m metav1.Object) { m.SetAnnotations(a) })
}

func (o *Object) SetFinalizers(f []string) { o.change(func(m metav1.Object) { m.SetFinalizers(f) }) }

func (o *Object) SetOwnerReferences(r []metav1.OwnerReference) {
	o.change(func(m metav1.Object) { m.SetOwnerReferences(r) })
}

func (o *Object) SetManagedFields(f []metav1.ManagedFieldsEntry) {
	o.change(func(m metav1.Object) { m.SetManagedFields(f) })
}

func (o *Object) change(set func(metav1.Object)) {
	obj, err := o.Decode()
	if err != nil {
		return // Decode has reported it
	}
	set(obj)
	if changed, err := o.codec.Pack(o.format, obj); err == nil {
		o.record = changed.record
		o.derived.Store(nil)
	}
}
