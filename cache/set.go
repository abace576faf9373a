// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Set holds the namespaces or names of a [Scope]. You may change it at any time, and use it in
// several scopes. Informers start or stop with its elements. For objects that leave the scope,
// sources deliver a delete with the last known state. The zero value is an empty set, for a scope
// without objects.
type Set[E comparable] struct {
	mu       sync.Mutex // guards the fields below
	elements sets.Set[E]
	follow   map[any]func() // called after each change
}

// NewSet returns a set of the elements.
func NewSet[E comparable](elements ...E) *Set[E] {
	s := &Set[E]{}
	s.Add(elements...)
	return s
}

// Add adds elements.
func (s *Set[E]) Add(elements ...E) {
	s.change(func() { s.elements.Insert(elements...) })
}

// Remove removes elements.
func (s *Set[E]) Remove(elements ...E) {
	s.change(func() { s.elements.Delete(elements...) })
}

// Replace sets the elements. Informers of elements that stay are not restarted.
func (s *Set[E]) Replace(elements ...E) {
	s.change(func() { s.elements.Clear().Insert(elements...) })
}

// Elements returns a copy of the elements, in no particular order.
func (s *Set[E]) Elements() []E {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.elements.UnsortedList()
}

func (s *Set[E]) change(do func()) {
	for _, f := range s.changed(do) {
		f()
	}
}

func (s *Set[E]) changed(do func()) []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.elements == nil {
		s.elements = sets.Set[E]{}
	}
	do()
	return slices.Collect(maps.Values(s.follow))
}

// tell registers f to be called after each change. A nil f removes it; a call of it may still be
// running.
func (s *Set[E]) tell(who any, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.follow == nil {
		s.follow = map[any]func(){}
	}
	if s.follow[who] = f; f == nil {
		delete(s.follow, who)
	}
}
