// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

// Storage holds a resource's objects and history, for all its versions. Stored objects are never
// modified.
type Storage struct {
	StorageKind schema.GroupVersionKind // the form of its objects
	Objects     map[Key]*unstructured.Unstructured
	Keys        []Key          // of objects, in path order
	Empties     map[Key]string // what Request.Empties was at the last write
	history
	encodings map[*unstructured.Unstructured]map[wire.Form][]byte // of recent objects
	Changed   chan struct{}                                       // closed at each event

	Conversion *kinds.Conversion // nil: versions differ in their apiVersion only
	// shown has the objects that the webhook converted, by apiVersion.
	shown map[*unstructured.Unstructured]map[string]*unstructured.Unstructured
}

// NewStorage returns a storage without objects. stored is the form of its objects.
func NewStorage(stored schema.GroupVersionKind, version int64) *Storage {
	return &Storage{
		StorageKind: stored, Objects: map[Key]*unstructured.Unstructured{}, Empties: map[Key]string{}, history: history{Oldest: version},
		encodings: map[*unstructured.Unstructured]map[wire.Form][]byte{}, Changed: make(chan struct{}),
	}
}

// ConvertWith sets how the objects are converted. Objects that were converted in another way are
// forgotten.
func (s *Storage) ConvertWith(c *kinds.Conversion) {
	if jsonvalue.Equal(s.Conversion, c) {
		return
	}
	s.Conversion, s.shown = c, map[*unstructured.Unstructured]map[string]*unstructured.Unstructured{}
	s.encodings = map[*unstructured.Unstructured]map[wire.Form][]byte{}
}
