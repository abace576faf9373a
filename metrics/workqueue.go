// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

// Workqueue registers the seven standard workqueue metrics with r, each with the queue's name as the label "name", and
// returns hooks that feed them. One call serves any number of queues, whose names must differ; their series go when they are
// shut down. Names, labels and buckets are those of Kubernetes' own components (k8s.io/component-base), so dashboards fit:
//
//	workqueue_depth                              ready keys
//	workqueue_adds_total                         keys that became ready
//	workqueue_queue_duration_seconds             from ready to taken
//	workqueue_work_duration_seconds              from taken to settled
//	workqueue_unfinished_work_seconds            sum of the times for which keys have been held so far
//	workqueue_longest_running_processor_seconds  the longest of them
//	workqueue_retries_total                      keys given a due time: after an error, a RequeueAfter, or from outside
//
// The error is r's: most often that the names are taken already.
func Workqueue(r prometheus.Registerer) (*hook.Queue, error) {
	if r == nil {
		return nil, errors.New("metrics.Workqueue: the Registerer is nil; prometheus.NewRegistry makes one")
	}
	m := newWorkqueue()
	if err := r.Register(m); err != nil {
		return nil, fmt.Errorf("metrics.Workqueue: %w", err)
	}
	return &hook.Queue{
		Opened:  func(e hook.QueueOpened) { m.open(e) },
		Closed:  func(e hook.QueueClosed) { m.close(e.Queue) },
		Added:   func(e hook.QueueAdded) { m.adds.WithLabelValues(e.Queue).Add(float64(e.Keys)) },
		Delayed: func(e hook.QueueDelayed) { m.retries.WithLabelValues(e.Queue).Inc() },
		Taken:   func(e hook.QueueTaken) { m.waited.WithLabelValues(e.Queue).Observe(e.Waited.Seconds()) },
		Settled: m.settled,
	}, nil
}

// workqueue is one collector for all seven.
type workqueue struct {
	depth, unfinished, longest *prometheus.Desc
	adds, retries              *prometheus.CounterVec
	waited, worked             *prometheus.HistogramVec

	mu    sync.Mutex // guards stats
	stats map[string]func() hook.QueueStats
}

func newWorkqueue() *workqueue {
	label := []string{"name"}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("workqueue_"+name, help, label, nil)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "workqueue", Name: name, Help: help}, label)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "workqueue", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 12),
		}, label)
	}
	return &workqueue{
		depth:      desc("depth", "Keys that are ready and wait for a worker."),
		unfinished: desc("unfinished_work_seconds", "Sum of the times for which keys have been held by workers so far."),
		longest:    desc("longest_running_processor_seconds", "The longest time for which a key has been held by a worker so far."),
		adds:       counter("adds_total", "Keys that became ready."),
		retries:    counter("retries_total", "Keys that were given a due time."),
		waited:     histogram("queue_duration_seconds", "How long keys were ready before a worker took them."),
		worked:     histogram("work_duration_seconds", "How long workers held keys."),
		stats:      map[string]func() hook.QueueStats{},
	}
}

func (m *workqueue) open(e hook.QueueOpened) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats[e.Queue] = e.Stats
}

func (m *workqueue) close(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stats, queue)
	m.adds.DeleteLabelValues(queue)
	m.retries.DeleteLabelValues(queue)
	m.waited.DeleteLabelValues(queue)
	m.worked.DeleteLabelValues(queue)
}

func (m *workqueue) settled(e hook.QueueSettled) {
	m.worked.WithLabelValues(e.Queue).Observe(e.Held.Seconds())
	if e.Outcome == hook.QueueRetry || e.Outcome == hook.QueueAfter {
		m.retries.WithLabelValues(e.Queue).Inc()
	}
}

// Describe implements prometheus.Collector.
func (m *workqueue) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.depth
	ch <- m.unfinished
	ch <- m.longest
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *workqueue) Collect(ch chan<- prometheus.Metric) {
	for name, stats := range m.snapshot() {
		ch <- prometheus.MustNewConstMetric(m.depth, prometheus.GaugeValue, float64(stats.Ready), name)
		ch <- prometheus.MustNewConstMetric(m.unfinished, prometheus.GaugeValue, stats.Unfinished.Seconds(), name)
		ch <- prometheus.MustNewConstMetric(m.longest, prometheus.GaugeValue, stats.Longest.Seconds(), name)
	}
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

func (m *workqueue) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.adds, m.retries, m.waited, m.worked}
}

// snapshot asks each queue for its figures, not under our lock: the queue takes its own.
func (m *workqueue) snapshot() map[string]hook.QueueStats {
	m.mu.Lock()
	asks := maps.Clone(m.stats)
	m.mu.Unlock()
	stats := make(map[string]hook.QueueStats, len(asks))
	for name, ask := range asks {
		stats[name] = ask()
	}
	return stats
}
