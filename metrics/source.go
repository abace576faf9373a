// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

type sources struct {
	collectors

	dropped         *series[sourceDrop, prometheus.Counter]
	handlers, polls *series[sourceRun, prometheus.Counter]
	open            *open[sourceRun, struct{}]
}

type sourceRun struct{ Controller, Source string }

type sourceDrop struct {
	sourceRun
	reason string
}

func newSources(mu *lock) *sources {
	s := &sources{open: newOpen[sourceRun, struct{}](mu)}
	labels := func(r sourceRun) []string { return []string{r.Controller, r.Source} }
	s.dropped = newSeries(mu,
		counter("setpoint_source_dropped_total", "Events that a source did not deliver, by predicate or reason.", "controller", "source", "reason"),
		func(d sourceDrop) bool { return s.open.has(d.sourceRun) },
		func(d sourceDrop) []string { return append(labels(d.sourceRun), d.reason) })
	s.handlers = newSeries(mu,
		counter("setpoint_source_handler_failures_total", "Errors and panics of handlers and predicates. The events are retried.", "controller", "source"),
		s.open.has, labels)
	s.polls = newSeries(mu,
		counter("setpoint_source_poll_failures_total", "Failed polls of a ticker. They are retried.", "controller", "source"),
		s.open.has, labels)
	s.collectors = collectors{s.dropped, s.handlers, s.polls}
	return s
}

func (s *sources) observe(e hook.Event) bool {
	switch e := e.(type) {
	case *hook.SourceStarted:
		s.open.start(sourceRun(*e), func() struct{} { return struct{}{} })
	case *hook.SourceStopped:
		s.stopped(sourceRun(*e))
	case *hook.SourceDropped:
		add(s.dropped, sourceDrop{sourceRun{e.Controller, e.Source}, e.Reason}, 1)
	case *hook.HandlerFailed:
		add(s.handlers, sourceRun{e.Controller, e.Source}, 1)
	case *hook.PollFailed:
		add(s.polls, sourceRun{e.Controller, e.Source}, 1)
	default:
		return false
	}
	return true
}

func (s *sources) stopped(r sourceRun) {
	s.open.stop(r, func() {
		s.dropped.forgetLocked(func(d sourceDrop) bool { return d.sourceRun == r })
		s.handlers.forgetLocked(func(other sourceRun) bool { return other == r })
		s.polls.forgetLocked(func(other sourceRun) bool { return other == r })
	})
}
