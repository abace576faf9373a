// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

// Table is one version of a resource. The store's lock guards it.
type Table struct {
	kinds.Definition
	*Storage
	Fields map[string]*managedfields.FieldManager // by subresource
	blank  *unstructured.Unstructured             // an object before its creation
	Gone   chan struct{}                          // closed when the resource is withdrawn
}

// Sorted returns the objects in path order.
func (t *Table) Sorted() []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, k := range t.Keys {
		list = append(list, t.Objects[k])
	}
	return list
}

// Codec returns the codec of the kind.
func (t *Table) Codec() codec.Codec {
	return codec.Codec{Kind: t.GVK(), Typed: t.BuiltIn, Schema: t.Schema}
}

// Blank returns an object before its creation. It must not be modified.
func (t *Table) Blank() (*unstructured.Unstructured, error) {
	var err error
	if t.blank == nil {
		t.blank, err = t.Codec().Empty()
	}
	return t.blank, err
}
