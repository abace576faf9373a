// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// SlotSelector selects objects by slot. Package cache implements it.
type SlotSelector interface {
	// Slot returns the slot of a key.
	Slot(key types.NamespacedName) (uint8, error)
	// Wanted returns the slots to keep, and a channel that is closed when they change.
	Wanted() (SlotSet, <-chan struct{})
	// NewMark returns an object of the stored type with a name and nothing else. The informer's
	// event handlers recognize its delete.
	NewMark(name string) runtime.Object
}

// Part limits a Target to the objects of some slots.
type Part struct {
	SlotSelector
	// Owner is the kind of the controllers whose key counts for an object that they own. An object
	// without such a controller has no slot. Default: the key of the object itself.
	Owner schema.GroupVersionKind
}

// KeyOf returns the key that counts for an object. clusterScoped is about Owner.
func (p *Part) KeyOf(o metav1.Object, clusterScoped bool) (key types.NamespacedName, ok bool) {
	if p.Owner.Kind == "" {
		return object.Key(o), true
	}
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil {
		return key, false
	}
	return p.ownerKey(o.GetNamespace(), owner.APIVersion, owner.Kind, owner.Name, clusterScoped)
}

func (p *Part) ownerKey(namespace, apiVersion, kind, name string, clusterScoped bool) (key types.NamespacedName, ok bool) {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		group = ""
	}
	if group != p.Owner.Group || kind != p.Owner.Kind {
		return key, false
	}
	if clusterScoped {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true
}
