// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/traceparent"
)

// ApplyConfiguration has the fields that an object should have, its name, and the namespace of a
// namespaced kind. Use a generated type, from k8s.io/client-go/applyconfigurations or from
// controller-gen, or [UnstructuredConfiguration]. cache.Handle.OwnerRef returns an owner reference
// for it.
type ApplyConfiguration interface {
	GetName() *string
	GetNamespace() *string
}

// UnstructuredConfiguration returns an apply configuration with the fields of u. Do not use an
// object that was read: the apply would own all of its fields.
func UnstructuredConfiguration(u *unstructured.Unstructured) ApplyConfiguration {
	c := &unstructuredConfiguration{object: u}
	c.ObjectMetaApplyConfiguration = metaac.ObjectMeta()
	if u != nil {
		c.TypeMetaApplyConfiguration = *metaac.TypeMeta().WithKind(u.GetKind()).WithAPIVersion(u.GetAPIVersion())
		c.WithName(u.GetName()).WithNamespace(u.GetNamespace())
	}
	return c
}

type unstructuredConfiguration struct {
	metaac.TypeMetaApplyConfiguration
	*metaac.ObjectMetaApplyConfiguration

	object *unstructured.Unstructured
}

func (c *unstructuredConfiguration) MarshalJSON() ([]byte, error) {
	if len(c.object.GetManagedFields()) > 0 {
		return nil, errors.New("the object has managedFields; give only the fields to apply, not an object that was read")
	}
	return json.Marshal(c.object.Object)
}

// Apply creates the object, or sets the fields of the configuration, with server-side apply. It
// removes fields that this field owner applied before and no longer has in the configuration. It
// takes fields over from other owners, unless you give [NoForce]. See also [UnlessAlready].
func (h *Handle[T]) Apply(ctx context.Context, desired ApplyConfiguration, options ...Option) (T, error) {
	return h.apply(ctx, desired, "", options)
}

// ApplyStatus is Apply for the status of an existing object.
func (h *Handle[T]) ApplyStatus(ctx context.Context, desired ApplyConfiguration, options ...Option) (T, error) {
	return h.apply(ctx, desired, "status", options)
}

func (h *Handle[T]) apply(ctx context.Context, desired ApplyConfiguration, subresource string, options []Option) (T, error) {
	t := h.target
	t.subresource = subresource
	c, err := t.call(applying, options)
	if err != nil {
		return *new(T), err
	}
	key, body, err := t.configuration(desired, t.gvk)
	if err != nil {
		return *new(T), err
	}
	if err := checkLive[T](t, c, key); err != nil {
		return *new(T), err
	}
	if t.applied(c, body) {
		m, err := t.mapping(ctx, applying, key.Namespace)
		if err != nil {
			return *new(T), err
		}
		t.skipped(ctx, m.Resource)
		return c.already.DeepCopyObject().(T), nil //nolint:forcetypeassert // checkLive has seen it
	}
	sent := body
	if c.already != nil && c.already.GetUID() != "" {
		if sent, err = withUID(body, c.already.GetUID()); err != nil {
			return *new(T), fmt.Errorf("%s: %w", t.doing(applying, key), err)
		}
	}
	obj, err := sendPatch[T](ctx, t, applying, key, types.ApplyYAMLPatchType, sent, c)
	if err != nil {
		if c.already != nil {
			err = explainUID(c.already, err)
		}
		return *new(T), err
	}
	t.remember(c, body, obj)
	return obj, nil
}

func (t target) configuration(desired ApplyConfiguration, kind schema.GroupVersionKind) (types.NamespacedName, []byte, error) {
	var key types.NamespacedName
	if argument.IsNil(desired) || desired.GetName() == nil || *desired.GetName() == "" {
		return key, nil, fmt.Errorf("%s: the configuration has no name", t.doing(applying, key))
	}
	key.Name = *desired.GetName()
	if ns := desired.GetNamespace(); ns != nil {
		key.Namespace = *ns
	}
	apiVersion := kind.GroupVersion().String()
	if k, ok := desired.(interface{ GetKind() *string }); ok {
		switch k := k.GetKind(); {
		case k == nil || *k == "":
			return key, nil, fmt.Errorf("%s: the configuration has no kind; set its apiVersion and kind, or the TypeMeta of its object, to %s and %s",
				t.doing(applying, key), apiVersion, kind.Kind)
		case *k != kind.Kind:
			return key, nil, fmt.Errorf("%s: the configuration is of a %s, not of a %s", t.doing(applying, key), *k, kind.Kind)
		}
	}
	if v, ok := desired.(interface{ GetAPIVersion() *string }); ok && v.GetAPIVersion() != nil && *v.GetAPIVersion() != apiVersion {
		return key, nil, fmt.Errorf("%s: the configuration is of version %s, not of %s", t.doing(applying, key), *v.GetAPIVersion(), apiVersion)
	}
	body, err := json.Marshal(desired)
	if err != nil {
		return key, nil, fmt.Errorf("%s: %w", t.doing(applying, key), err)
	}
	return key, body, nil
}

const appliedFor = time.Hour

// UnlessAlready makes Apply and ApplyStatus skip a request that would change nothing. live is the
// object as last seen, usually in a cache, or nil. A skipped call returns a copy of live.
//
// A request has the UID of live: if another client has deleted the object, or deleted and created
// it, the error is a conflict, and no object with only these fields comes into being.
//
// The client compares with its last call; it does not predict what the API server would do. After
// each apply with this option it keeps a hash of the bytes sent and of the object returned. It
// keeps one hash for each kind, UID, field owner and subresource. A later call with the same hash
// is skipped. The hash ignores resourceVersion, managedFields, apiVersion, kind, the annotations
// kubectl.kubernetes.io/last-applied-configuration and tracing.k8s.io/traceparent, and except in
// ApplyStatus the status.
//
// An apply is sent if any other part of the object has changed, or if a new object has its name. It
// is also sent once after each start of the process, after an hour, after an error, and after
// 100,000 other objects. If live comes from a cache with a Transform, every apply is sent.
//
// If live is stale, an apply that is needed may be skipped. The object's next event then reconciles
// it again. Changes of ownership alone go unnoticed: another field owner, or the same one in
// another process, takes or gives up a field without changing its value.
func UnlessAlready(live Object) Option {
	return Option{name: "UnlessAlready", fits: []verb{applying}, set: func(c *call) error {
		c.compare, c.already = true, nil
		if !argument.IsNil(live) {
			c.already = live
		}
		return nil
	}}
}

type appliedKey struct {
	kind               schema.GroupVersionKind
	uid                types.UID
	owner, subresource string
}

func checkLive[T Object](t target, c call, key types.NamespacedName) error {
	if c.compare && t.form == inMetadata {
		return fmt.Errorf("%s: client.UnlessAlready needs a handle of whole objects, not of metadata", t.doing(applying, key))
	}
	if c.already == nil {
		return nil
	}
	if _, ok := c.already.(T); !ok {
		return fmt.Errorf("%s: client.UnlessAlready was given a %T, not a %T", t.doing(applying, key), c.already, *new(T))
	}
	if is := ObjectKeyFromObject(c.already); is != key {
		return fmt.Errorf("%s: client.UnlessAlready was given another object, %s", t.doing(applying, key), is)
	}
	return nil
}

// applied reports whether the last call sent the same and live is its result. If not, it forgets
// that call: the next one may fail and still change the object.
func (t target) applied(c call, body []byte) bool {
	if !c.compare || c.already == nil || len(c.write.DryRun) > 0 {
		return false
	}
	key := t.appliedKey(c, c.already)
	last, ok := t.client.applied.Get(key)
	if !ok {
		return false
	}
	if sum, ok := t.sum(body, c.already); ok && sum == last {
		return true
	}
	t.client.applied.Remove(key)
	return false
}

func (t target) remember(c call, body []byte, answer Object) {
	if !c.compare || len(c.write.DryRun) > 0 || answer.GetUID() == "" {
		return
	}
	if sum, ok := t.sum(body, answer); ok {
		t.client.applied.Add(t.appliedKey(c, answer), sum, appliedFor)
	}
}

func (t target) appliedKey(c call, obj Object) appliedKey {
	return appliedKey{t.gvk, obj.GetUID(), c.write.FieldManager, t.subresource}
}

func (t target) sum(body []byte, obj Object) (sum [sha256.Size]byte, ok bool) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return sum, false
	}
	content = maps.Clone(content) // it is the object's own if that is unstructured
	delete(content, "apiVersion")
	delete(content, "kind")
	if t.subresource != "status" {
		delete(content, "status")
	}
	if m, ok := content["metadata"].(map[string]any); ok {
		m = maps.Clone(m)
		delete(m, "resourceVersion")
		delete(m, "managedFields")
		traceparent.Remove(m)
		if all, ok := m["annotations"].(map[string]any); ok {
			all = maps.Clone(all)
			if delete(all, corev1.LastAppliedConfigAnnotation); len(all) == 0 {
				delete(m, "annotations")
			} else {
				m["annotations"] = all
			}
		}
		content["metadata"] = m
	}
	data, err := json.Marshal(content) // sorted by key
	if err != nil {
		return sum, false
	}
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%d\n", len(body))
	_, _ = hash.Write(body)
	_, _ = hash.Write(data)
	return [sha256.Size]byte(hash.Sum(nil)), true
}

func (t target) skipped(ctx context.Context, r schema.GroupVersionResource) {
	if !hook.Gets[*hook.SkippedApply](t.client.hook) {
		return
	}
	s := &hook.SkippedApply{Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: t.subresource}
	if l := journal.FromContext(ctx); l != nil {
		s.Controller = l.Origin().Controller
	}
	t.client.hook.Send(s)
}

// withUID sets the UID in the metadata of a JSON object that has metadata.
func withUID(body []byte, uid types.UID) ([]byte, error) {
	var object, metadata map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(object["metadata"], &metadata); err != nil {
		return nil, err
	}
	var err error
	if metadata["uid"], err = json.Marshal(uid); err != nil {
		return nil, err
	}
	if object["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}
