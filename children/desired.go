// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
)

// Option changes what Reconcile does with a child.
type Option func(*desired)

// With returns a desired child with options.
func With(child client.ApplyConfiguration, options ...Option) client.ApplyConfiguration {
	d := desiredOf(child)
	d.after = slices.Clip(d.after)
	for _, o := range options {
		if o != nil {
			o(&d)
		}
	}
	return &d
}

// After delays a child until the others exist and are ready. They must be desired in the same call;
// only their kinds and names matter.
func After(others ...client.ApplyConfiguration) Option {
	return func(d *desired) { d.after = append(d.after, others...) }
}

// Ready replaces the rules of kstatus for a child. reason is a short clause about a child that is
// not ready, such as "1 of 3 members has joined". The function may be called at any time during
// Reconcile, once for each version of the child: its result must depend on the child alone.
func Ready(is func(child client.Object) (ready bool, reason string)) Option {
	return func(d *desired) { d.ready = is }
}

// KeepDrift leaves changes by others alone until the desired fields change. A field that the API
// server does not store is then reported once only: others may have removed it. Default: a field
// that differs from the desired one is set again.
func KeepDrift() Option { return func(d *desired) { d.keepDrift = true } }

// Optional skips a child whose kind the API server does not serve. No event follows once it does,
// so return RequeueAfter to look again. Default: an error, so that the controller retries.
func Optional() Option { return func(d *desired) { d.optional = true } }

// Recreate deletes a child if the API server refuses to change an immutable field. The event of the
// deletion leads to the Reconcile that creates it again. Its data may be lost. Default: an error.
func Recreate() Option { return func(d *desired) { d.recreate = true } }

// desired is a child that an owner wants.
type desired struct {
	client.ApplyConfiguration

	after                         []client.ApplyConfiguration
	ready                         func(client.Object) (bool, string)
	keepDrift, optional, recreate bool
}

func desiredOf(child client.ApplyConfiguration) desired {
	if d, ok := child.(*desired); ok {
		return *d
	}
	return desired{ApplyConfiguration: child}
}

// MarshalJSON implements json.Marshaler: options are not part of the configuration.
func (d *desired) MarshalJSON() ([]byte, error) { return encoded(d.ApplyConfiguration) }

// kindName returns the apiVersion and the kind that a configuration has, or nothing.
func kindName(c client.ApplyConfiguration) schema.GroupVersionKind {
	k, ok := c.(interface {
		GetKind() *string
		GetAPIVersion() *string
	})
	if !ok || k.GetKind() == nil || k.GetAPIVersion() == nil {
		return schema.GroupVersionKind{}
	}
	return schema.FromAPIVersionAndKind(*k.GetAPIVersion(), *k.GetKind())
}

// keyOf returns the name of a child, as far as it is known. A namespaced owner's child without a
// namespace is in the owner's.
func keyOf(c client.ApplyConfiguration, ownerNamespace string, namespaced bool) (key types.NamespacedName, err error) {
	if c.GetName() == nil || *c.GetName() == "" {
		return key, errors.New("it has no name")
	}
	key.Name = *c.GetName()
	if ns := c.GetNamespace(); ns != nil {
		key.Namespace = *ns
	}
	switch {
	case !namespaced && ownerNamespace != "":
		return key, errors.New("it is cluster-scoped, and a namespaced owner cannot own it; apply it with client.Handle, and delete it in a finalizer step")
	case !namespaced:
		key.Namespace = ""
	case ownerNamespace == "" && key.Namespace == "":
		return key, errors.New("it has no namespace, nor has its owner; set its namespace")
	case key.Namespace == "":
		key.Namespace = ownerNamespace
	case ownerNamespace != "" && key.Namespace != ownerNamespace:
		return key, fmt.Errorf("it is in the namespace %s, and an owner cannot own objects in another namespace than its own, %s; use a name in that namespace, or apply it with client.Handle and delete it in a finalizer step", key.Namespace, ownerNamespace)
	}
	return key, nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// encoded calls MarshalJSON itself, because json.Marshal puts the Go type in front of its errors.
func encoded(c client.ApplyConfiguration) ([]byte, error) {
	if m, ok := c.(json.Marshaler); ok {
		return m.MarshalJSON()
	}
	return json.Marshal(c)
}
