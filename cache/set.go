// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"maps"
	"slices"
	"sync"
)

// Set holds the namespaces, or the names, of a [Scope]. It may be changed at any time, by several goroutines, and may belong to
// several scopes: their informers come and go with it. What leaves a scope is a delete to its sources, with the last known
// state. The zero value is an empty set, which is a scope of nothing.
type Set[E comparable] struct {
	mu       sync.Mutex // guards what follows
	elements map[E]struct{}
	follow   map[any]func() // are called after each change
}

// NewSet makes a set of the elements.
func NewSet[E comparable](elements ...E) *Set[E] {
	s := &Set[E]{}
	s.Add(elements...)
	return s
}

// Add adds elements. Those that are in the set already make no difference.
func (s *Set[E]) Add(elements ...E) {
	s.change(func() {
		for _, e := range elements {
			s.elements[e] = struct{}{}
		}
	})
}

// Remove removes elements. Those that are not in the set make no difference.
func (s *Set[E]) Remove(elements ...E) {
	s.change(func() {
		for _, e := range elements {
			delete(s.elements, e)
		}
	})
}

// Replace makes the set hold these elements and no others. What it held before and holds still is not touched.
func (s *Set[E]) Replace(elements ...E) {
	s.change(func() {
		clear(s.elements)
		for _, e := range elements {
			s.elements[e] = struct{}{}
		}
	})
}

// Elements returns a copy of what the set holds, in no particular order.
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

// changed changes the set, and returns what to call.
func (s *Set[E]) changed(do func()) []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.elements == nil {
		s.elements = map[E]struct{}{}
	}
	do()
	return slices.Collect(maps.Values(s.follow))
}

// tell has f called after each change, for who. A nil f ends that; the last one may be running then.
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
