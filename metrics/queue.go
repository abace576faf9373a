// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

// queues are the metrics of workqueues. The workqueue_ metrics are as in
// k8s.io/component-base/metrics/prometheus/workqueue.
type queues struct {
	collectors

	depth, unfinished, longest, keys *prometheus.Desc
	adds, retries                    *prometheus.CounterVec
	waited, worked                   *prometheus.HistogramVec
	dropped                          *series[queueDrop, prometheus.Counter]
	misused, panicked                *prometheus.CounterVec

	open  *open[string, queue]
	stats *figures[hook.QueueStats]
}

// queue has the series that each key feeds.
type queue struct {
	adds, retries, misused, panicked prometheus.Counter
	waited, worked                   prometheus.Observer
}

type queueDrop struct{ queue, why string }

func newQueues(mu *lock) *queues {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"name"}, labels...), nil)
	}
	buckets := prometheus.ExponentialBuckets(10e-9, 10, 12)
	q := &queues{
		depth:      desc("workqueue_depth", "Keys that are ready for a worker."),
		unfinished: desc("workqueue_unfinished_work_seconds", "Time in progress, sum of all keys that workers hold."),
		longest:    desc("workqueue_longest_running_processor_seconds", "Time in progress, longest of all keys that workers hold."),
		adds:       counter("workqueue_adds_total", "Keys that became ready.", "name"),
		retries:    counter("workqueue_retries_total", "Keys that got a due time.", "name"),
		waited:     histogram("workqueue_queue_duration_seconds", "Time from ready to taken.", buckets, "name"),
		worked:     histogram("workqueue_work_duration_seconds", "Time from taken to settled.", buckets, "name"),
		keys:       desc("setpoint_queue_keys", "Keys in the queue by state.", "state"),
		misused:    counter("setpoint_queue_misuses_total", "Calls that broke the queue's contract.", "name"),
		panicked:   counter("setpoint_queue_panics_total", "Panics of the queue's callbacks.", "name"),
		open:       newOpen[string, queue](mu),
		stats:      newFigures[hook.QueueStats](mu),
	}
	q.dropped = newSeries(mu, counter("setpoint_queue_dropped_total", "Dropped keys and adds by cause.", "name", "why"),
		func(d queueDrop) bool { return q.open.has(d.queue) }, func(d queueDrop) []string { return []string{d.queue, d.why} })
	q.collectors = collectors{q.adds, q.retries, q.waited, q.worked, q.dropped, q.misused, q.panicked,
		scraped{[]*prometheus.Desc{q.depth, q.unfinished, q.longest, q.keys}, q.scrape}}
	return q
}

func (q *queues) hooks() *hook.Queue {
	with := func(name string, f func(*queue)) {
		if of := q.open.of(name); of != nil {
			f(of)
		}
	}
	return &hook.Queue{
		Opened: q.opened,
		Closed: q.closed,
		Added: func(e hook.QueueAdded) {
			if of := q.open.of(e.Queue); of != nil {
				of.adds.Add(float64(e.Keys))
			}
		},
		Delayed: func(e hook.QueueDelayed) { with(e.Queue, func(of *queue) { of.retries.Inc() }) },
		Taken: func(e hook.QueueTaken) {
			if of := q.open.of(e.Queue); of != nil {
				of.waited.Observe(e.Waited.Seconds())
			}
		},
		Settled: func(e hook.QueueSettled) {
			of := q.open.of(e.Queue)
			if of == nil {
				return
			}
			of.worked.Observe(e.Held.Seconds())
			if e.Outcome == hook.QueueRetry || e.Outcome == hook.QueueAfter {
				of.retries.Inc()
			}
		},
		Dropped: func(e hook.QueueDropped) {
			if c, ok := q.dropped.of(queueDrop{e.Queue, e.Why}); ok {
				c.Add(float64(e.Keys))
			}
		},
		Misused:  func(e hook.QueueMisused) { with(e.Queue, func(of *queue) { of.misused.Inc() }) },
		Panicked: func(e hook.QueuePanicked) { with(e.Queue, func(of *queue) { of.panicked.Inc() }) },
	}
}

func (q *queues) opened(e hook.QueueOpened) {
	q.open.start(e.Queue, func() queue {
		name := label(e.Queue)
		return queue{
			adds: q.adds.WithLabelValues(name), retries: q.retries.WithLabelValues(name),
			waited: q.waited.WithLabelValues(name), worked: q.worked.WithLabelValues(name),
			misused: q.misused.WithLabelValues(name), panicked: q.panicked.WithLabelValues(name),
		}
	})
	q.stats.start(e.Of, e.Queue, e.Stats)
}

func (q *queues) closed(e hook.QueueClosed) {
	q.open.stop(e.Queue, func() {
		name := label(e.Queue)
		for _, c := range []*prometheus.CounterVec{q.adds, q.retries, q.misused, q.panicked} {
			c.DeleteLabelValues(name)
		}
		q.waited.DeleteLabelValues(name)
		q.worked.DeleteLabelValues(name)
		q.dropped.forgetLocked(func(d queueDrop) bool { return d.queue == e.Queue })
	})
	q.stats.stop(e.Of)
}

// scrape adds up the figures of queues with the same name.
func (q *queues) scrape(ch chan<- prometheus.Metric) {
	all := map[string]hook.QueueStats{}
	q.stats.each(func(name string, s hook.QueueStats) {
		sum := all[name]
		sum.Ready += s.Ready
		sum.Waiting += s.Waiting
		sum.Held += s.Held
		sum.Parked += s.Parked
		sum.Paused += s.Paused
		sum.Unfinished += s.Unfinished
		sum.Longest = max(sum.Longest, s.Longest)
		all[name] = sum
	})
	for name, s := range all {
		gauge := func(d *prometheus.Desc, n float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, append([]string{label(name)}, labels...)...)
		}
		gauge(q.depth, float64(s.Ready))
		gauge(q.unfinished, s.Unfinished.Seconds())
		gauge(q.longest, s.Longest.Seconds())
		for state, n := range map[string]int{"ready": s.Ready, "waiting": s.Waiting, "held": s.Held, "parked": s.Parked, "paused": s.Paused} {
			gauge(q.keys, float64(n), state)
		}
	}
}
