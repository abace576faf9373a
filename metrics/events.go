// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

type events struct {
	collectors

	sent    *series[eventSent, prometheus.Counter]
	failed  *prometheus.CounterVec // no labels; none until the first failure
	dropped *series[string, prometheus.Counter]
}

type eventSent struct{ kind, of, reason string }

func newEvents(mu *lock) *events {
	e := &events{}
	e.failed = counter("setpoint_events_failed_total", "Failed requests for events. Most are tried again.")
	e.sent = newSeries(mu,
		counter("setpoint_events_sent_total", "Events that the API server has stored. Several may share one request.", "kind", "type", "reason"),
		always, func(s eventSent) []string { return []string{s.kind, s.of, s.reason} })
	e.dropped = newSeries(mu,
		counter("setpoint_events_dropped_total", "Events that were not sent.", "why"),
		always, func(why string) []string { return []string{why} })
	e.collectors = collectors{e.sent, e.failed, e.dropped}
	return e
}

func (of *events) observe(e hook.Event) bool {
	switch e := e.(type) {
	case *hook.EventSent:
		add(of.sent, eventSent{e.Kind, e.Type, e.Reason}, e.Events)
	case *hook.EventFailed:
		of.failed.WithLabelValues().Inc()
	case *hook.EventDropped:
		add(of.dropped, e.Why, e.Events)
	default:
		return false
	}
	return true
}
