// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"maps"
	"slices"
	"sync"
)

// Set holds the namespaces or names of a [Scope]. You may change it at any time, and use it in
// several scopes. Informers start or stop with its elements. For objects that leave the scope,
// sources deliver a delete with the last known state. The zero value is an empty set, for a scope
// without objects.
type Set[E comparable] struct {
	mu       sync.Mutex // guards the fields below
	elements map[E]struct{}
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
	s.change(func() {
		for _, e := range elements {
			s.elements[e] = struct{}{}
		}
	})
}

// Remove removes elements.
func (s *Set[E]) Remove(elements ...E) {
	s.change(func() {
		for _, e := range elements {
			delete(s.elements, e)
		}
	})
}

// Replace sets the elements. Informers of elements that stay are not restarted.
func (s *Set[E]) Replace(elements ...E) {
	s.change(func() {
		clear(s.elements)
		for _, e := range elements {
			s.elements[e] = struct{}{}
		}
	})
}

// Elements returns a copy of the elements, in no particular order.
func (s *Set[E]) Elements() []E {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.elements))
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
		s.elements = map[E]struct{}{}
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
