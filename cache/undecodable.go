// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// UndecodableError is the error of a read if objects in its selection exist, but do not fit the Go
// type. The read also returns all other objects, for callers who can do without these:
//
//	list, err := client.Collect(websites.All(ctx, cache.ListOptions{}))
//	var u *cache.UndecodableError
//	if err != nil && !errors.As(err, &u) {
//		return err
//	}
//
// Do not delete what seems to be unused after such an error. An object counts as in the selection
// if the labels or owners that this depends on cannot be read. So does each one for an [Index]. A
// read that reaches its Limit has no such error.
type UndecodableError struct {
	// Objects are sorted by namespace and name.
	Objects []UndecodableObject
}

// UndecodableObject is an object that does not fit its Go type.
type UndecodableObject struct {
	// Namespace and Name are empty if they cannot be read either.
	Namespace, Name string
	Err             error
}

const (
	fewObjects = 3
	causeBytes = 300
)

// Error names the first three objects and the number of the others.
func (e *UndecodableError) Error() string {
	text, correct := fmt.Sprintf("%d objects are left out", len(e.Objects)), "them"
	if len(e.Objects) == 1 {
		text, correct = "an object is left out", "it"
	}
	for n, o := range e.Objects[:min(len(e.Objects), fewObjects)] {
		separator := ": "
		if n > 0 {
			separator = "; "
		}
		text += separator + o.String()
	}
	if more := len(e.Objects) - fewObjects; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text + "; correct " + correct + " or the Go type, or use the objects beside this error"
}

// Unwrap returns the errors of all objects.
func (e *UndecodableError) Unwrap() []error {
	all := make([]error, len(e.Objects))
	for n, o := range e.Objects {
		all[n] = o.Err
	}
	return all
}

// String returns the name and the beginning of the error.
func (o UndecodableObject) String() string {
	name := "an object without a readable name"
	if o.Name != "" {
		name = object.Name(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	}
	return name + ": " + shorten(o.Err.Error())
}

func shorten(text string) string {
	if len(text) <= causeBytes {
		return text
	}
	end := causeBytes
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// undecodable is the error of a read of one object.
type undecodable struct {
	error

	as *UndecodableError
}

func newUndecodable(name types.NamespacedName, err error) error {
	return &undecodable{err, &UndecodableError{[]UndecodableObject{{name.Namespace, name.Name, err}}}}
}

func (u *undecodable) Unwrap() []error { return []error{u.error, u.as} }

// leftovers collects the objects that a read leaves out.
type leftovers struct{ objects []UndecodableObject }

func (m *leftovers) add(name types.NamespacedName, err error) {
	m.objects = append(m.objects, UndecodableObject{name.Namespace, name.Name, err})
}

// err returns nil if there are none.
func (m *leftovers) err() error {
	if len(m.objects) == 0 {
		return nil
	}
	slices.SortFunc(m.objects, func(a, b UndecodableObject) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return &UndecodableError{m.objects}
}

// mayMatch reports whether o may select an object that cannot be decoded.
func (o ListOptions) mayMatch(m *listwatch.Misfit) bool {
	return (o.Namespace == "" || m.Namespace == o.Namespace || m.Name == "") &&
		(o.Labels == nil || m.AnyLabels || o.Labels.Matches(labels.Set(m.Labels)))
}

// mayKeep reports whether an object that cannot be decoded may be in a slot of the scope.
func (i *informer) mayKeep(m *listwatch.Misfit) bool {
	s := i.key.slots
	if s == nil || m.Name == "" || i.key.slotOwner.Kind != "" && m.AnyOwners {
		return true
	}
	slot, ok := i.keySlot(m)
	return ok && s.has(slot)
}

// misfits returns the objects of the scope that cannot be decoded, as far as that is known before a
// read: not Records.
func (i *informer) misfits() map[types.NamespacedName]*listwatch.Misfit {
	if i.lw == nil {
		return nil
	}
	all := i.lw.Broken.Misfits(i.Store())
	maps.DeleteFunc(all, func(_ types.NamespacedName, m *listwatch.Misfit) bool { return !i.mayKeep(m) })
	return all
}
