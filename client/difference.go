// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/builtin"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// PatchFrom changes an object. before is the object as it was read, and after a changed copy of it.
// PatchFrom sends a patch with the fields that differ. So it keeps fields that T does not have, and
// others' changes to other fields. If nothing differs, it sends nothing and returns a copy of
// before.
//
// A typed built-in object gets a strategic merge patch, which changes single elements of lists with
// a merge key, such as containers and conditions. Others get a JSON merge patch, which replaces a
// list that differs, such as the finalizers. A built-in object gets one, too, if two elements have
// the same key, such as a port for both TCP and UDP. [Writer].Patch sends any patch. A change of
// the status is a second request, to the status subresource if the kind has one.
//
// The patch has the UID of before: if another object has replaced it, the error is a conflict. If
// the patch replaces a list, or removes an object with its fields, it also has the resourceVersion:
// then the error is a conflict if the object has changed at all, and nothing that others have added
// is lost. With [OptimisticLock] every patch has it. Other metadata that only the API server sets
// is not compared.
func PatchFrom[T Object](ctx context.Context, w Writer[T], before, after T, options ...Option) (T, error) {
	if err := checkPair(before, after); err != nil {
		return *new(T), fmt.Errorf("client.PatchFrom: %w", err)
	}
	locked := slices.ContainsFunc(options, isOptimisticLock)
	if locked && before.GetResourceVersion() == "" {
		return *new(T), fmt.Errorf("client.PatchFrom %s: client.OptimisticLock needs a resourceVersion; give an object that was read", describe(before))
	}
	options = slices.DeleteFunc(slices.Clone(options), isOptimisticLock)
	if was, lost := lostTrace(before, after); lost {
		after, _ = after.DeepCopyObject().(T)
		setTrace(after, was)
	}
	d, err := compare(before, after)
	if err != nil {
		return *new(T), fmt.Errorf("client.PatchFrom %s: %w", describe(before), err)
	}
	if d.replaces != "" && !locked {
		if before.GetResourceVersion() == "" {
			return *new(T), fmt.Errorf("client.PatchFrom %s: the patch replaces %s, which others may have changed, so it needs a resourceVersion; give an object that was read",
				describe(before), d.replaces)
		}
		locked = true
	}
	stored := before
	version := func() string {
		if locked {
			return stored.GetResourceVersion()
		}
		return ""
	}
	if len(d.main) > 0 {
		data, err := d.data(d.main, before, version())
		if err != nil {
			return *new(T), err
		}
		if stored, err = w.Patch(ctx, ObjectKeyFromObject(before), d.patchType, data, options...); err != nil {
			return *new(T), explainUID(before, err)
		}
	}
	if len(d.status) == 0 {
		if len(d.main) == 0 {
			stored, _ = before.DeepCopyObject().(T)
		}
		return stored, nil
	}
	data, err := d.data(d.status, before, version())
	if err != nil {
		return *new(T), err
	}
	if stored, err = patchStatus(ctx, w, ObjectKeyFromObject(before), d.patchType, data, options); err != nil {
		return *new(T), explainUID(before, err)
	}
	return stored, nil
}

// explainUID makes a conflict of the API server's error about a patch with another UID.
func explainUID[T Object](before T, err error) error {
	d := statusOf(err).Details
	if !apierrors.IsInvalid(err) || !slices.ContainsFunc(d.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" }) {
		return err
	}
	return replaced(schema.GroupKind{Group: d.Group, Kind: d.Kind}, ObjectKeyFromObject(before), fmt.Errorf("its UID is no longer %s", before.GetUID()))
}

func isOptimisticLock(o Option) bool { return o.name == optimisticLock }

func patchStatus[T Object](ctx context.Context, w Writer[T], key types.NamespacedName, pt types.PatchType, data []byte, options []Option) (T, error) {
	stored, err := w.PatchStatus(ctx, key, pt, data, options...)
	if not, ok := errors.AsType[*NotServedError](err); ok && not.Subresource != "" {
		return w.Patch(ctx, key, pt, data, options...)
	}
	return stored, err
}

func checkPair[T Object](before, after T) error {
	if argument.IsNil(before) || argument.IsNil(after) {
		return errors.New("an object is nil; give one that was read, and a changed copy of it")
	}
	if before.GetName() == "" {
		return errors.New("the first object has no name; give one that was read")
	}
	if was, is := describe(before), describe(after); was != is {
		return fmt.Errorf("the objects are %s and %s; give one that was read, and a changed copy of it", was, is)
	}
	return nil
}

func describe[T Object](obj T) string {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if formOf[T]() == typed || kind == "" {
		kind = reflect.TypeOf(obj).Elem().Name()
	}
	return kind + " " + object.Name(object.Key(obj))
}

type difference struct {
	patchType    types.PatchType
	main, status map[string]any
	replaces     string // a field that the patch replaces as a whole, or ""
}

func compare[T Object](before, after T) (difference, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return difference{}, nil
	}
	was, wasStatus, is, isStatus, err := contents(onlyChanged(before, after))
	if err != nil { // some types have no zero value in JSON
		was, wasStatus, is, isStatus, err = contents(before, after)
	}
	if err != nil {
		return difference{}, err
	}
	d := difference{patchType: types.StrategicMergePatchType}
	ok := builtin.HasType(before)
	if ok {
		d.main, ok = strategicPatch(was, is, before)
	}
	if ok {
		d.status, ok = strategicPatch(wasStatus, isStatus, before)
	}
	if !ok {
		d = difference{patchType: types.MergePatchType, main: mergePatch(was, is), status: mergePatch(wasStatus, isStatus)}
	}
	var keys strategicpatch.LookupPatchMeta
	if d.patchType == types.StrategicMergePatchType {
		if keys, err = strategicpatch.NewPatchMetaFromStruct(before); err != nil {
			return difference{}, err
		}
	}
	if d.replaces = replaces(d.main, was, keys, ""); d.replaces == "" {
		d.replaces = replaces(d.status, wasStatus, keys, "")
	}
	return d, nil
}

// onlyChanged returns copies without the outermost fields that are equal, and without
// managedFields, so that these are not encoded. They share all else with the objects.
func onlyChanged[T Object](before, after T) (one, other Object) {
	_, special := any(before).(json.Marshaler) // it may have more than fields
	if special || reflect.TypeOf(before) != reflect.TypeOf(after) {
		return before, after
	}
	a, b := reflect.New(reflect.TypeOf(before).Elem()), reflect.New(reflect.TypeOf(after).Elem())
	a.Elem().Set(reflect.ValueOf(before).Elem())
	b.Elem().Set(reflect.ValueOf(after).Elem())
	for n := range a.Elem().NumField() {
		x, y := a.Elem().Field(n), b.Elem().Field(n)
		if x.CanSet() && !a.Elem().Type().Field(n).Anonymous && reflect.DeepEqual(x.Interface(), y.Interface()) {
			x.SetZero()
			y.SetZero()
		}
	}
	for _, o := range []reflect.Value{a, b} {
		if f, ok := o.Elem().Type().FieldByName("ObjectMeta"); ok && len(f.Index) == 1 && f.Type.Kind() == reflect.Struct {
			o.Elem().FieldByIndex(f.Index).Addr().Interface().(metav1.Object).SetManagedFields(nil) //nolint:forcetypeassert // it makes T an Object
		}
	}
	return a.Interface().(T), b.Interface().(T) //nolint:forcetypeassert // they have the type of before
}

func contents(before, after Object) (was, wasStatus, is, isStatus map[string]any, err error) {
	if was, wasStatus, err = content(before); err == nil {
		is, isStatus, err = content(after)
	}
	return was, wasStatus, is, isStatus, err
}

// replaces returns a field below path that a patch replaces as a whole: a list without a merge key,
// or an object that is removed. before has the fields as the writer knew them. keys has the merge
// keys, or is nil for a JSON merge patch.
func replaces(patch, before map[string]any, keys strategicpatch.LookupPatchMeta, path string) string {
	for field, value := range patch {
		if keys != nil && strings.HasPrefix(field, "$") {
			continue // a directive
		}
		below := ""
		switch old, wasObject := before[field].(map[string]any); value := value.(type) {
		case []any:
			below = replacesElements(value, before[field], keys, field, path)
		case map[string]any:
			below = replaces(value, old, fieldKeys(keys, field), path+field+".")
		default: // null, or a scalar
			if _, wasList := before[field].([]any); wasList || wasObject {
				below = path + field
			}
		}
		if below != "" {
			return below
		}
	}
	return ""
}

// replacesElements is replaces for a list.
func replacesElements(patch []any, before any, keys strategicpatch.LookupPatchMeta, field, path string) string {
	if keys == nil {
		return path + field
	}
	of, list, err := keys.LookupPatchMetadataForSlice(field)
	if err != nil || !slices.Contains(list.GetPatchStrategies(), "merge") {
		return path + field
	}
	known, _ := before.([]any)
	key := list.GetPatchMergeKey()
	for _, element := range patch {
		fields, ok := element.(map[string]any)
		if !ok {
			continue
		}
		var old map[string]any
		for _, k := range known {
			if k, _ := k.(map[string]any); k != nil && k[key] == fields[key] {
				old = k
			}
		}
		if below := replaces(fields, old, of, path+field+"."); below != "" {
			return below
		}
	}
	return ""
}

// fieldKeys returns nil if the API server knows no merge keys below a field, such as in a map.
func fieldKeys(keys strategicpatch.LookupPatchMeta, field string) strategicpatch.LookupPatchMeta {
	if keys == nil {
		return nil
	}
	below, _, _ := keys.LookupPatchMetadataForStruct(field) // nil with an error
	return below
}

func (d difference) data(patch map[string]any, before Object, version string) ([]byte, error) {
	m, ok := patch["metadata"].(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	if uid := before.GetUID(); uid != "" {
		m["uid"] = uid
	}
	if version != "" {
		m["resourceVersion"] = version
	}
	if len(m) > 0 {
		patch["metadata"] = m
	}
	return json.Marshal(patch)
}
