// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// limit is how many series one metric may have whose labels depend on what a program asks for. What comes later is counted
// together, with each label "other".
const limit = 1000

const other = "other"

// label returns what can be the value of a label: what is no UTF-8 is quoted, so that different names stay different.
func label(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strconv.QuoteToASCII(text)
}

// vec is a *prometheus.CounterVec or *prometheus.HistogramVec.
type vec[M any] interface {
	prometheus.Collector
	WithLabelValues(labels ...string) M
	DeleteLabelValues(labels ...string) bool
}

// series are the members of a vec, by a key that takes no allocation to find them by.
type series[K comparable, M any] struct {
	vec[M]
	labels func(K) []string
	wanted func(K) bool // asked before one is made

	by atomic.Pointer[map[K]M] // replaced, never changed

	mu sync.Mutex // guards the replacing
}

func newSeries[K comparable, M any](v vec[M], wanted func(K) bool, labels func(K) []string) *series[K, M] {
	s := &series[K, M]{vec: v, wanted: wanted}
	s.labels = func(key K) []string {
		values := labels(key)
		for i := range values {
			values[i] = label(values[i])
		}
		return values
	}
	s.by.Store(&map[K]M{})
	return s
}

// of returns a member. It says no if that is not wanted: what it is of has stopped.
func (s *series[K, M]) of(key K) (M, bool) {
	if m, ok := (*s.by.Load())[key]; ok {
		return m, true
	}
	return s.create(key)
}

func (s *series[K, M]) create(key K) (m M, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := *s.by.Load()
	if m, ok := by[key]; ok {
		return m, true
	}
	if !s.wanted(key) {
		return m, false
	}
	labels := s.labels(key)
	if len(by) >= limit {
		for i := range labels {
			labels[i] = other
		}
		return s.WithLabelValues(labels...), true
	}
	by = maps.Clone(by)
	by[key] = s.WithLabelValues(labels...)
	s.by.Store(&by)
	return by[key], true
}

// forget deletes the members that are gone.
func (s *series[K, M]) forget(gone func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := maps.Clone(*s.by.Load())
	for key := range by {
		if gone(key) {
			s.DeleteLabelValues(s.labels(key)...)
			delete(by, key)
		}
	}
	s.by.Store(&by)
}

// always has what a series is of always wanted.
func always[K any](K) bool { return true }

// open is what runs, by name, and a T for each name.
type open[K comparable, T any] struct {
	by atomic.Pointer[map[K]*T] // replaced, never changed

	mu   sync.Mutex // guards what follows, and the replacing
	many map[K]int
}

func newOpen[K comparable, T any]() *open[K, T] {
	o := &open[K, T]{many: map[K]int{}}
	o.by.Store(&map[K]*T{})
	return o
}

// of returns what belongs to a name, nil if nothing of that name runs.
func (o *open[K, T]) of(name K) *T { return (*o.by.Load())[name] }

// has says whether something of that name runs.
func (o *open[K, T]) has(name K) bool { return o.of(name) != nil }

// start notes that one more of a name runs.
func (o *open[K, T]) start(name K, first func() *T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.many[name]++
	if o.many[name] > 1 {
		return
	}
	by := maps.Clone(*o.by.Load())
	by[name] = first()
	o.by.Store(&by)
}

// stop notes that one fewer of a name runs, and calls last, after nobody can find it any more, if none does.
func (o *open[K, T]) stop(name K, last func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.many[name]--; o.many[name] > 0 {
		return
	}
	delete(o.many, name)
	by := maps.Clone(*o.by.Load())
	delete(by, name)
	o.by.Store(&by)
	last()
}
