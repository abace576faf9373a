// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/managed"
)

// manageLocked updates the managedFields of obj, which replaces live (nil: is new). An apply has
// done that itself. An object of another kind keeps the managedFields of live.
func (s *Server) manageLocked(r *Request, t *table, live, obj *unstructured.Unstructured) error {
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
	fields, err := s.fieldManagerLocked(t, r.Subresource)
	if err != nil {
		return err
	}
	if live == nil {
		if live, err = t.empty(); err != nil {
			return err
		}
	}
	if t.conversion != nil {
		return s.manageConvertedLocked(r, fields, live, obj)
	}
	was, is := managed.Read(live), managed.Read(obj)
	unstructured.RemoveNestedField(obj.Object, "metadata", "managedFields")
	fields.UpdateNoErrors(was, is, r.fieldManager())
	return managed.Write(obj, is.Entries)
}

// manageConvertedLocked is manageLocked for a kind with a conversion webhook. It returns the error
// of a pending conversion.
func (s *Server) manageConvertedLocked(r *Request, fields *managedfields.FieldManager, live, obj *unstructured.Unstructured) error {
	if _, err := fields.Update(live, obj.DeepCopy(), r.fieldManager()); err != nil {
		if pends := s.unansweredLocked(); pends != nil {
			return pends
		}
	}
	fields.UpdateNoErrors(live, obj, r.fieldManager())
	return nil
}

// fieldManager returns the name of the request's field manager: the query's, or the beginning of
// the user agent.
func (r *Request) fieldManager() string {
	if r.manager != "" {
		return r.manager
	}
	agent, _, _ := strings.Cut(r.http.UserAgent(), "/")
	var name strings.Builder
	for _, c := range agent {
		if !unicode.IsPrint(c) {
			continue
		}
		if name.Len()+utf8.RuneLen(c) > validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(c)
	}
	return name.String()
}

// empty returns an object before its creation. It must not be modified.
func (t *table) empty() (*unstructured.Unstructured, error) {
	var err error
	if t.blank == nil {
		t.blank, err = t.codec().Empty()
	}
	return t.blank, err
}

// fieldManagerLocked returns the field manager of a subresource; "" is the object itself. It is
// made at the first call.
func (s *Server) fieldManagerLocked(t *table, subresource string) (*managedfields.FieldManager, error) {
	if f := t.fields[subresource]; f != nil {
		return f, nil
	}
	c := t.codec()
	var others []codec.Codec // of the kind's other versions
	for _, other := range s.tables {
		if other.store == t.store && other != t {
			others = append(others, other.codec())
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
	f, err := create(managed.Ownable{TypeConverter: converter}, &versions{server: s, table: t}, codec.OneVersion{}, c,
		c.Kind, c.Kind.GroupVersion(), subresource, t.resetFields(subresource, others))
	if err != nil {
		return nil, err
	}
	if t.fields == nil {
		t.fields = map[string]*managedfields.FieldManager{}
	}
	t.fields[subresource] = f
	return f, nil
}

// resetFields returns the fields that a write of the object or of a subresource cannot change.
// Their writer does not own them. The status of a custom kind has them in all versions.
func (t *table) resetFields(subresource string, others []codec.Codec) map[fieldpath.APIVersion]fieldpath.Filter {
	var reset []fieldpath.Path
	c := t.codec()
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

	server *Server
	table  *table
}

// ConvertToVersion implements runtime.ObjectConvertor. It runs with the server's lock. The field
// manager can ignore the error of a pending conversion, so the server records it.
func (v *versions) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	want, known := to.KindForGroupVersionKinds([]schema.GroupVersionKind{in.GetObjectKind().GroupVersionKind()})
	if s := v.server; ok && known && v.table.conversion != nil && s.current != nil && len(u.Object) > 2 {
		list, err := s.convertLocked(&s.current.answers, target{store: v.table.store, version: want.GroupVersion()}, []*unstructured.Unstructured{u})
		if err != nil {
			s.unanswered = err
			return nil, err
		}
		return list[0], nil
	}
	return v.OneVersion.ConvertToVersion(in, to)
}

// unansweredLocked returns the error of a conversion that a field manager needed.
func (s *Server) unansweredLocked() error {
	err := s.unanswered
	s.unanswered = nil
	if p := (*pending)(nil); errors.As(err, &p) {
		return err
	}
	return nil
}
