// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fieldmanager

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/conversion"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/managed"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/webhook"
)

// Managers keep the managedFields of objects.
type Managers struct {
	store      *store.Store
	converter  *conversion.Converter
	Current    *request.Request // the one that is served; nil while its consequences are settled
	unanswered error            // see versions
}

// NewManagers returns the field managers of a store.
func NewManagers(s *store.Store, c *conversion.Converter) *Managers {
	return &Managers{store: s, converter: c}
}

// Manage updates the managedFields of obj, which replaces live (nil: is new). An apply has
// done that itself. An object of another kind keeps the managedFields of live.
func (m *Managers) Manage(r *request.Request, t *store.Table, live, obj *unstructured.Unstructured) error {
	switch {
	case r.Verb == "apply":
		return nil
	case obj.GetKind() != t.Kind:
		obj.SetManagedFields(nil)
		if live != nil {
			obj.SetManagedFields(live.GetManagedFields())
		}
		return nil
	}
	fields, err := m.Manager(t, r.Subresource)
	if err != nil {
		return err
	}
	if live == nil {
		if live, err = t.Blank(); err != nil {
			return err
		}
	}
	if t.Conversion != nil {
		return m.manageConverted(r, fields, live, obj)
	}
	was, is := managed.Read(live), managed.Read(obj)
	unstructured.RemoveNestedField(obj.Object, "metadata", "managedFields")
	fields.UpdateNoErrors(was, is, r.FieldManager())
	return managed.Write(obj, is.Entries)
}

// manageConverted is Manage for a kind with a conversion webhook. It returns the error
// of a pending conversion.
func (m *Managers) manageConverted(r *request.Request, fields *managedfields.FieldManager, live, obj *unstructured.Unstructured) error {
	if _, err := fields.Update(live, obj.DeepCopy(), r.FieldManager()); err != nil {
		if pends := m.Pending(); pends != nil {
			return pends
		}
	}
	fields.UpdateNoErrors(live, obj, r.FieldManager())
	return nil
}

// Manager returns the field manager of a subresource; "" is the object itself. It is
// made at the first call.
func (m *Managers) Manager(t *store.Table, subresource string) (*managedfields.FieldManager, error) {
	if f := t.Fields[subresource]; f != nil {
		return f, nil
	}
	c := t.Codec()
	var others []codec.Codec // of the kind's other versions
	for _, other := range m.store.Tables {
		if other.Storage == t.Storage && other != t {
			others = append(others, other.Codec())
		}
	}
	converter, err := c.TypeConverter(others...)
	if err != nil {
		return nil, err
	}
	create := managedfields.NewDefaultCRDFieldManager
	if c.Typed {
		create = managedfields.NewDefaultFieldManager
	}
	f, err := create(managed.Ownable{TypeConverter: converter}, &versions{managers: m, table: t}, codec.OneVersion{}, c,
		c.Kind, c.Kind.GroupVersion(), subresource, resetFields(t, subresource, others))
	if err != nil {
		return nil, err
	}
	if t.Fields == nil {
		t.Fields = map[string]*managedfields.FieldManager{}
	}
	t.Fields[subresource] = f
	return f, nil
}

// resetFields returns the fields that a write of the object or of a subresource cannot change.
// Their writer does not own them. The status of a custom kind has them in all versions.
func resetFields(t *store.Table, subresource string, others []codec.Codec) map[fieldpath.APIVersion]fieldpath.Filter {
	var reset []fieldpath.Path
	c := t.Codec()
	switch key := c.Kind.GroupKind().String(); {
	case !c.Typed && (subresource != "" && subresource != "status" || !t.Status):
	case subresource == "" || subresource == "finalize":
		reset = append(reset, fieldpath.MakePathOrDie("status"))
	case subresource != "status":
	case !c.Typed || metadataResetByStatus[key]:
		reset = append(reset, fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata"))
	case key == "Deployment.apps":
		reset = append(reset, fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "labels"))
	case key == "Pod":
		reset = append(reset, fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "deletionTimestamp"),
			fieldpath.MakePathOrDie("metadata", "ownerReferences"))
	default:
		reset = append(reset, fieldpath.MakePathOrDie("spec"))
	}
	if len(reset) == 0 {
		return nil
	}
	sets := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, one := range append(others, c) {
		if one.Kind == c.Kind || !c.Typed && subresource == "status" {
			sets[fieldpath.APIVersion(one.Kind.GroupVersion().String())] = fieldpath.NewSet(reset...)
		}
	}
	return fieldpath.NewExcludeFilterSetMap(sets)
}

// metadataResetByStatus has the built-in kinds whose status subresource cannot change metadata.
var metadataResetByStatus = map[string]bool{
	"FlowSchema.flowcontrol.apiserver.k8s.io": true, "PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io": true,
	"PodGroup.scheduling.k8s.io": true, "ServiceCIDR.networking.k8s.io": true, "StorageVersionMigration.storagemigration.k8s.io": true,
	"ResourceClaim.resource.k8s.io": true, "DeviceTaintRule.resource.k8s.io": true, "VolumeAttachment.storage.k8s.io": true,
	"StorageVersion.internal.apiserver.k8s.io": true,
}

// versions converts objects to the versions of their managers.
type versions struct {
	codec.OneVersion

	managers *Managers
	table    *store.Table
}

// ConvertToVersion implements runtime.ObjectConvertor. It runs with the server's lock. The field
// manager can ignore the error of a pending conversion, so the server records it.
func (v *versions) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	want, known := to.KindForGroupVersionKinds([]schema.GroupVersionKind{in.GetObjectKind().GroupVersionKind()})
	if s := v.managers; ok && known && v.table.Conversion != nil && s.Current != nil && len(u.Object) > 2 {
		converted, err := s.converter.Convert(&s.Current.Answers, v.table, want.GroupVersion(), u)
		if err != nil {
			s.unanswered = err
			return nil, err
		}
		return converted, nil
	}
	return v.OneVersion.ConvertToVersion(in, to)
}

// Pending returns the error of a conversion that a field manager needed.
func (m *Managers) Pending() error {
	err := m.unanswered
	m.unanswered = nil
	if webhook.IsPending(err) {
		return err
	}
	return nil
}
