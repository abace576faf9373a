// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/rbac"
)

// Kind is an API kind, such as a *cache.Handle.
type Kind interface {
	GroupVersionKind() schema.GroupVersionKind
	// Namespaced reports whether the kind's objects live in namespaces. It makes no request, and
	// returns an error while this is unknown.
	Namespaced() (bool, error)
}

// Owner returns the key of the controlling owner if it has the given kind, in any version. If the
// owner changed, both are reconciled. While it is unknown whether the owner's kind is namespaced,
// the source retries the event. cache.Handle.OwnerRef makes such references.
func Owner(of Kind) Handler[types.NamespacedName] { return owner{kind: of} }

// AnyOwner is Owner for all owner references, as of controllerutil.SetOwnerReference.
func AnyOwner(of Kind) Handler[types.NamespacedName] { return owner{kind: of, any: true} }

type owner struct {
	kind Kind
	any  bool // also owners that do not control the object
}

func (owner) MetadataOnly() bool { return true }

func (o owner) CheckType(Object) error {
	if argument.IsNil(o.kind) {
		return errors.New("handler.Owner: the kind is nil; give the owner's handle, such as a *cache.Handle")
	}
	return nil
}

func (o owner) Keys(_ context.Context, e Event) ([]types.NamespacedName, error) {
	var keys []types.NamespacedName
	for _, obj := range e.states() {
		for _, ref := range obj.GetOwnerReferences() {
			if !o.follows(ref) {
				continue
			}
			namespaced, err := o.kind.Namespaced()
			if err != nil {
				return nil, fmt.Errorf("owner of %s: %w", e.Key(), err)
			}
			key := types.NamespacedName{Name: ref.Name}
			if namespaced {
				key.Namespace = obj.GetNamespace()
			}
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys, nil
}

// Needs is the right to make the references, if they set blockOwnerDeletion and the cluster
// enforces OwnerReferencesPermissionEnforcement. References of AnyOwner usually do not set it.
func (o owner) Needs() []rbac.Need {
	if o.any || argument.IsNil(o.kind) {
		return nil
	}
	return []rbac.Need{{Kind: o.kind.GroupVersionKind(), Rule: rbac.Rule{
		Resource: "finalizers", Verbs: []string{"update"}, Why: "owner references with blockOwnerDeletion, where the cluster enforces it",
	}}}
}

// Unmapped is for package why.
func (o owner) Unmapped(obj Object) string {
	what := "controlling owner"
	if o.any {
		what = "owner"
	}
	text := fmt.Sprintf("it has no %s of kind %s", what, o.kind.GroupVersionKind().GroupKind())
	for _, ref := range obj.GetOwnerReferences() {
		text += fmt.Sprintf("; it has the owner %s %s of %s", ref.Kind, ref.Name, ref.APIVersion)
		if ref.Controller == nil || !*ref.Controller {
			text += ", which does not control it"
		}
	}
	return text
}

func (o owner) follows(ref metav1.OwnerReference) bool {
	want := o.kind.GroupVersionKind()
	if ref.Kind != want.Kind || !o.any && (ref.Controller == nil || !*ref.Controller) {
		return false
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == want.Group
}
