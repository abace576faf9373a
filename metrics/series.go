// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// limit is the maximum number of series of a metric whose labels depend on the program. Later ones
// share one series, "other".
const limit = 1000

const other = "other"

// label quotes text that is not UTF-8, so that different names remain different.
func label(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strconv.QuoteToASCII(text)
}

type vec[M any] interface {
	prometheus.Collector
	WithLabelValues(labels ...string) M
	DeleteLabelValues(labels ...string) bool
}

// series are the members of a vec by key. A lookup does not allocate.
type series[K comparable, M any] struct {
	vec[M]
	labels func(K) []string
	wanted func(K) bool

	mu *lock
	by atomic.Pointer[map[K]M] // replaced under the lock, never changed
}

func newSeries[K comparable, M any](mu *lock, v vec[M], wanted func(K) bool, labels func(K) []string) *series[K, M] {
	s := &series[K, M]{vec: v, wanted: wanted, mu: mu}
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

// of returns a member. It returns false if the owner of the member has stopped.
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

func (s *series[K, M]) forgetLocked(gone func(K) bool) {
	by := maps.Clone(*s.by.Load())
	for key := range by {
		if gone(key) {
			s.DeleteLabelValues(s.labels(key)...)
			delete(by, key)
		}
	}
	s.by.Store(&by)
}

// add counts n in a series, if it is wanted.
func add[K comparable](to *series[K, prometheus.Counter], key K, n int) {
	if c, ok := to.of(key); ok {
		c.Add(float64(n))
	}
}

func always[K any](K) bool { return true }

// lock guards starts, stops and new series. Counting does not need it.
type lock struct{ sync.Mutex }

// open has the running objects by name, with a T for each name.
type open[K comparable, T any] struct {
	mu *lock
	by atomic.Pointer[map[K]*running[T]] // replaced under the lock
}

type running[T any] struct {
	of   T
	many int // guarded by the lock
}

func newOpen[K comparable, T any](mu *lock) *open[K, T] {
	o := &open[K, T]{mu: mu}
	o.by.Store(&map[K]*running[T]{})
	return o
}

// with calls do if name is running.
func (o *open[K, T]) with(name K, do func(*T)) {
	if r := (*o.by.Load())[name]; r != nil {
		do(&r.of)
	}
}

func (o *open[K, T]) has(name K) bool { return (*o.by.Load())[name] != nil }

func (o *open[K, T]) start(name K, first func() T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	by := *o.by.Load()
	if by[name] == nil {
		by = maps.Clone(by)
		by[name] = &running[T]{of: first()}
		o.by.Store(&by)
	}
	by[name].many++
}

func (o *open[K, T]) stop(name K, lastLocked func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	by := *o.by.Load()
	if by[name] == nil {
		return
	}
	if by[name].many--; by[name].many > 0 {
		return
	}
	by = maps.Clone(by)
	delete(by, name)
	o.by.Store(&by)
	lastLocked()
}

// figures has functions that return the figures of running objects at a scrape.
type figures[S any] struct {
	mu   *lock
	asks map[any]ask[S]
}

type ask[S any] struct {
	name  string
	stats func() S
}

func newFigures[S any](mu *lock) *figures[S] { return &figures[S]{mu: mu, asks: map[any]ask[S]{}} }

func (f *figures[S]) start(of any, name string, stats func() S) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks[of] = ask[S]{name, stats}
}

func (f *figures[S]) stop(of any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.asks, of)
}

// each holds no lock when it calls the functions, because they take locks of their own.
func (f *figures[S]) each(do func(name string, stats S)) {
	f.mu.Lock()
	asks := maps.Clone(f.asks)
	f.mu.Unlock()
	for _, a := range asks {
		do(a.name, a.stats())
	}
}

type scraped struct {
	descs   []*prometheus.Desc
	collect func(ch chan<- prometheus.Metric)
}

func (s scraped) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d
	}
}

func (s scraped) Collect(ch chan<- prometheus.Metric) { s.collect(ch) }

type collectors []prometheus.Collector

func (c collectors) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range c {
		one.Describe(ch)
	}
}

func (c collectors) Collect(ch chan<- prometheus.Metric) {
	for _, one := range c {
		one.Collect(ch)
	}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// histogram has classic buckets and, as controller-runtime's, native ones: at most 100, which are
// reset at most once an hour.
func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, labels)
}
