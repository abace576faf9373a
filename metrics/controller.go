// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

// controllers are the metrics of controllers. The controller_runtime_ ones are as in
// sigs.k8s.io/controller-runtime/pkg/internal/controller/metrics.
type controllers struct {
	collectors

	total                                                 *prometheus.CounterVec
	errors, terminal, panics, timeouts, slow, fights, old *prometheus.CounterVec
	took, awaited, takeover                               *prometheus.HistogramVec
	takeoverOld                                           *prometheus.CounterVec
	workers, active, failing                              *prometheus.Desc

	goneLocked func(controller string) // after the last controller of a name has stopped
	open       *open[string, controller]
	stats      *figures[hook.ControllerStats]
}

type controller struct {
	results                                               map[hook.Outcome]prometheus.Counter
	errors, terminal, panics, timeouts, slow, fights, old prometheus.Counter
	took, awaited, takeover                               prometheus.Observer
	takeoverOld                                           prometheus.Counter
}

// results are the values of the label result. controller-runtime's "requeue" has no equivalent
// here.
var results = map[hook.Outcome]string{
	hook.Succeeded: "success", hook.RequeuedAfter: "requeue_after", hook.Interrupted: "interrupted", hook.Stale: "stale",
	hook.Failed: "error", hook.FailedTerminally: "error", hook.Panicked: "error",
}

func newControllers(mu *lock) *controllers {
	waits := []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	count := func(name, help string) *prometheus.CounterVec { return counter(name, help, "controller") }
	c := &controllers{
		total:    counter("controller_runtime_reconcile_total", "Reconciles by result.", "controller", "result"),
		errors:   count("controller_runtime_reconcile_errors_total", "Reconciles that ended with an error, panics included."),
		terminal: count("controller_runtime_terminal_reconcile_errors_total", "Reconciles that ended with an error that is not retried."),
		panics:   count("controller_runtime_reconcile_panics_total", "Reconciles that panicked."),
		timeouts: count("controller_runtime_reconcile_timeouts_total", "Reconciles that exceeded their deadline."),
		took: histogram("controller_runtime_reconcile_time_seconds", "Time of Reconciles.", []float64{
			0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1,
			1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
		}, "controller"),
		workers: desc("controller_runtime_max_concurrent_reconciles", "Maximum number of concurrent Reconciles.", "controller"),
		active:  desc("controller_runtime_active_workers", "Running Reconciles.", "controller"),
		failing: desc("setpoint_failing_keys", "Keys whose last Reconcile failed.", "controller", "reason"),
		slow:    count("setpoint_reconcile_slow_total", "Reconciles that were reported as slow."),
		fights:  count("setpoint_reconcile_fights_total", "Keys that were slowed down because they fight with another writer for a field."),
		awaited: histogram("setpoint_reconcile_own_writes_wait_seconds", "Time that keys waited until the caches contained their own writes.",
			waits, "controller"),
		old: count("setpoint_reconcile_stale_total", "Reconciles that may have missed their key's own writes."),
		takeover: histogram("setpoint_takeover_wait_seconds", "Time that a term waited until the caches contained the writes of the previous one.",
			waits, "controller"),
		takeoverOld: count("setpoint_takeover_stale_total", "Terms that may have missed writes of the previous one."),

		open:  newOpen[string, controller](mu),
		stats: newFigures[hook.ControllerStats](mu),
	}
	c.collectors = collectors{c.total, c.errors, c.terminal, c.panics, c.timeouts, c.took, c.slow, c.fights, c.awaited, c.old, c.takeover, c.takeoverOld,
		scraped{[]*prometheus.Desc{c.workers, c.active, c.failing}, c.scrape}}
	return c
}

func (c *controllers) observe(e hook.Event) bool {
	switch e := e.(type) {
	case *hook.ControllerStarted:
		c.started(e)
	case *hook.ControllerStopped:
		c.stopped(e)
	case *hook.Reconciled:
		c.open.with(e.Controller, func(of *controller) { of.reconciled(e) })
	case *hook.Awaited:
		c.open.with(e.Controller, func(of *controller) {
			if e.Took > 0 {
				of.awaited.Observe(e.Took.Seconds())
			}
			if e.Doubts != nil {
				of.old.Inc()
			}
		})
	case *hook.Takeover:
		c.open.with(e.Controller, func(of *controller) {
			of.takeover.Observe(e.Took.Seconds())
			if e.Doubts != nil {
				of.takeoverOld.Inc()
			}
		})
	case *hook.Slow:
		c.open.with(e.Controller, func(of *controller) { of.slow.Inc() })
	case *hook.Fight:
		c.open.with(e.Controller, func(of *controller) { of.fights.Inc() })
	default:
		return false
	}
	return true
}

func (of *controller) reconciled(r *hook.Reconciled) {
	of.took.Observe(r.Took.Seconds())
	of.results[r.Outcome].Inc()
	switch r.Outcome {
	case hook.Failed:
		of.errors.Inc()
	case hook.FailedTerminally:
		of.errors.Inc()
		of.terminal.Inc()
	case hook.Panicked:
		of.errors.Inc()
		of.panics.Inc()
	case hook.Succeeded, hook.RequeuedAfter, hook.Interrupted, hook.Stale:
	}
	if r.GaveUp {
		of.terminal.Inc()
	}
	if r.TimedOut {
		of.timeouts.Inc()
	}
}

func (c *controllers) started(e *hook.ControllerStarted) {
	c.open.start(e.Controller, func() controller { return c.series(e.Controller) })
	c.stats.start(e.Of, e.Controller, e.Stats)
}

func (c *controllers) series(name string) controller {
	name = label(name)
	of := controller{
		results: map[hook.Outcome]prometheus.Counter{},
		errors:  c.errors.WithLabelValues(name), terminal: c.terminal.WithLabelValues(name), panics: c.panics.WithLabelValues(name),
		timeouts: c.timeouts.WithLabelValues(name), slow: c.slow.WithLabelValues(name), fights: c.fights.WithLabelValues(name), old: c.old.WithLabelValues(name),
		took: c.took.WithLabelValues(name), awaited: c.awaited.WithLabelValues(name),
		takeover: c.takeover.WithLabelValues(name), takeoverOld: c.takeoverOld.WithLabelValues(name),
	}
	for outcome, result := range results {
		of.results[outcome] = c.total.WithLabelValues(name, result)
	}
	return of
}

func (c *controllers) stopped(e *hook.ControllerStopped) {
	c.open.stop(e.Controller, func() {
		name := label(e.Controller)
		for _, result := range results {
			c.total.DeleteLabelValues(name, result)
		}
		for _, v := range []*prometheus.CounterVec{c.errors, c.terminal, c.panics, c.timeouts, c.slow, c.fights, c.old, c.takeoverOld} {
			v.DeleteLabelValues(name)
		}
		c.took.DeleteLabelValues(name)
		c.awaited.DeleteLabelValues(name)
		c.takeover.DeleteLabelValues(name)
		c.goneLocked(e.Controller)
	})
	c.stats.stop(e.Of)
}

func (c *controllers) scrape(ch chan<- prometheus.Metric) {
	all := map[string]hook.ControllerStats{}
	c.stats.each(func(name string, s hook.ControllerStats) {
		sum := all[name]
		sum.Workers += s.Workers
		sum.Active += s.Active
		for reason, n := range s.Failing {
			if sum.Failing == nil {
				sum.Failing = map[string]int{}
			}
			sum.Failing[reason] += n
		}
		all[name] = sum
	})
	for name, s := range all {
		ch <- prometheus.MustNewConstMetric(c.workers, prometheus.GaugeValue, float64(s.Workers), label(name))
		ch <- prometheus.MustNewConstMetric(c.active, prometheus.GaugeValue, float64(s.Active), label(name))
		for reason, n := range s.Failing {
			ch <- prometheus.MustNewConstMetric(c.failing, prometheus.GaugeValue, float64(n), label(name), label(reason))
		}
	}
}
