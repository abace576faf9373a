// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

const maxTenants = 100

// queues are the metrics of workqueues. The workqueue_ ones are as in
// sigs.k8s.io/controller-runtime/pkg/internal/metrics.
type queues struct {
	collectors

	depth, unfinished, longest *prometheus.Desc
	keys, byClass, byTenant    *prometheus.Desc

	adds, retries     *prometheus.CounterVec
	waited, worked    *prometheus.HistogramVec
	dropped           *series[queueDrop, prometheus.Counter]
	misused, panicked *prometheus.CounterVec

	open  *open[string, queue]
	stats *figures[hook.QueueStats]
}

type queue struct {
	adds, retries, misused, panicked prometheus.Counter
	waited, worked                   prometheus.Observer
}

type queueDrop struct{ queue, why string }

func newQueues(mu *lock) *queues {
	buckets := prometheus.ExponentialBuckets(10e-9, 10, 12)
	const name, controller = "name", "controller"
	q := &queues{
		depth:      desc("workqueue_depth", "Keys that are ready for a worker.", name, controller, "priority"),
		unfinished: desc("workqueue_unfinished_work_seconds", "Time in progress, sum of all keys that workers hold.", name, controller),
		longest:    desc("workqueue_longest_running_processor_seconds", "Time in progress, longest of all keys that workers hold.", name, controller),
		adds:       counter("workqueue_adds_total", "Keys that became ready.", name, controller),
		retries:    counter("workqueue_retries_total", "Keys that got a due time.", name, controller),
		waited:     histogram("workqueue_queue_duration_seconds", "Time from ready to taken.", buckets, name, controller),
		worked:     histogram("workqueue_work_duration_seconds", "Time from taken to settled.", buckets, name, controller),
		keys:       desc("setpoint_queue_keys", "Keys in the queue by state.", name, "state"),
		byClass:    desc("setpoint_queue_ready_keys", "Ready keys by class.", name, "class"),
		byTenant:   desc("setpoint_queue_tenant_ready_keys", "Ready keys by tenant.", name, "tenant"),
		misused:    counter("setpoint_queue_misuses_total", "Calls that broke the queue's contract.", name),
		panicked:   counter("setpoint_queue_panics_total", "Panics of the queue's callbacks.", name),
		open:       newOpen[string, queue](mu),
		stats:      newFigures[hook.QueueStats](mu),
	}
	q.dropped = newSeries(mu, counter("setpoint_queue_dropped_total", "Dropped keys and adds by cause.", "name", "why"),
		func(d queueDrop) bool { return q.open.has(d.queue) }, func(d queueDrop) []string { return []string{d.queue, d.why} })
	q.collectors = collectors{q.adds, q.retries, q.waited, q.worked, q.dropped, q.misused, q.panicked,
		scraped{[]*prometheus.Desc{q.depth, q.unfinished, q.longest, q.keys, q.byClass, q.byTenant}, q.scrape}}
	return q
}

func (q *queues) observe(e hook.Event) bool {
	switch e := e.(type) {
	case *hook.QueueOpened:
		q.opened(e)
	case *hook.QueueClosed:
		q.closed(e)
	case *hook.QueueAdded:
		q.open.with(e.Queue, func(of *queue) { of.adds.Add(float64(e.Keys)) })
	case *hook.QueueDelayed:
		q.open.with(e.Queue, func(of *queue) { of.retries.Inc() })
	case *hook.QueueTaken:
		q.open.with(e.Queue, func(of *queue) { of.waited.Observe(e.Waited.Seconds()) })
	case *hook.QueueSettled:
		q.open.with(e.Queue, func(of *queue) {
			of.worked.Observe(e.Held.Seconds())
			if e.Outcome == hook.QueueRetry || e.Outcome == hook.QueueAfter {
				of.retries.Inc()
			}
		})
	case *hook.QueueDropped:
		add(q.dropped, queueDrop{e.Queue, e.Why}, e.Keys)
	case *hook.QueueMisused:
		q.open.with(e.Queue, func(of *queue) { of.misused.Inc() })
	case *hook.QueuePanicked:
		q.open.with(e.Queue, func(of *queue) { of.panicked.Inc() })
	default:
		return false
	}
	return true
}

func (q *queues) opened(e *hook.QueueOpened) {
	q.open.start(e.Queue, func() queue {
		name := label(e.Queue)
		return queue{
			adds: q.adds.WithLabelValues(name, name), retries: q.retries.WithLabelValues(name, name),
			waited: q.waited.WithLabelValues(name, name), worked: q.worked.WithLabelValues(name, name),
			misused: q.misused.WithLabelValues(name), panicked: q.panicked.WithLabelValues(name),
		}
	})
	q.stats.start(e.Of, e.Queue, e.Stats)
}

func (q *queues) closed(e *hook.QueueClosed) {
	q.open.stop(e.Queue, func() {
		name := label(e.Queue)
		q.misused.DeleteLabelValues(name)
		q.panicked.DeleteLabelValues(name)
		for _, v := range []*prometheus.MetricVec{q.adds.MetricVec, q.retries.MetricVec, q.waited.MetricVec, q.worked.MetricVec} {
			v.DeleteLabelValues(name, name)
		}
		q.dropped.forgetLocked(func(d queueDrop) bool { return d.queue == e.Queue })
	})
	q.stats.stop(e.Of)
}

func (q *queues) scrape(ch chan<- prometheus.Metric) {
	all := map[string]hook.QueueStats{}
	q.stats.each(func(name string, s hook.QueueStats) { all[name] = sumOf(all[name], s) })
	for name, s := range all {
		name = label(name)
		gauge := func(d *prometheus.Desc, n float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, append([]string{name}, labels...)...)
		}
		gauge(q.unfinished, s.Unfinished.Seconds(), name)
		gauge(q.longest, s.Longest.Seconds(), name)
		for state, n := range map[string]int{"ready": s.Ready, "waiting": s.Waiting, "held": s.Held, "parked": s.Parked, "paused": s.Paused} {
			gauge(q.keys, float64(n), state)
		}
		if len(s.ReadyByClass) == 0 {
			gauge(q.depth, float64(s.Ready), name, "")
		}
		for class, n := range s.ReadyByClass {
			gauge(q.depth, float64(n), name, priorityOf(class))
			gauge(q.byClass, float64(n), classLabel(class))
		}
		for tenant, n := range fewTenants(s.ReadyByTenant) {
			gauge(q.byTenant, float64(n), tenant)
		}
	}
}

func sumOf(a, b hook.QueueStats) hook.QueueStats {
	return hook.QueueStats{
		Ready: a.Ready + b.Ready, Waiting: a.Waiting + b.Waiting, Held: a.Held + b.Held, Parked: a.Parked + b.Parked, Paused: a.Paused + b.Paused,
		ReadyByClass: sumsOf(a.ReadyByClass, b.ReadyByClass), ReadyByTenant: sumsOf(a.ReadyByTenant, b.ReadyByTenant),
		Unfinished: a.Unfinished + b.Unfinished, Longest: max(a.Longest, b.Longest),
	}
}

func sumsOf[K comparable](a, b map[K]int) map[K]int {
	if len(a) == 0 {
		return b
	}
	sum := maps.Clone(a)
	for k, n := range b {
		sum[k] += n
	}
	return sum
}

// priorityOf gives background keys the priority of controller-runtime's initial lists, -100.
func priorityOf(class int) string { return strconv.Itoa(100 * class) }

func classLabel(class int) string {
	switch class {
	case -1:
		return "background"
	case 0:
		return "normal"
	case 1:
		return "interactive"
	}
	return strconv.Itoa(class)
}

func fewTenants(all map[string]int) map[string]int {
	tenants := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	})
	few := make(map[string]int, min(len(all), maxTenants+1))
	for i, tenant := range tenants {
		name := label(tenant)
		if i >= maxTenants {
			name = other
		}
		few[name] += all[tenant] // a tenant may be named "other", too
	}
	return few
}
