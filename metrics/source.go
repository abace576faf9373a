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
	handlers, polls *series[hook.SourceRun, prometheus.Counter]
	open            *open[hook.SourceRun, struct{}]
}

type sourceDrop struct {
	hook.SourceRun
	reason string
}

func newSources(mu *lock) *sources {
	s := &sources{open: newOpen[hook.SourceRun, struct{}](mu)}
	labels := func(r hook.SourceRun) []string { return []string{r.Controller, r.Source} }
	s.dropped = newSeries(mu,
		counter("setpoint_source_dropped_total", "Events that a source did not deliver, by predicate or reason.", "controller", "source", "reason"),
		func(d sourceDrop) bool { return s.open.has(d.SourceRun) },
		func(d sourceDrop) []string { return append(labels(d.SourceRun), d.reason) })
	s.handlers = newSeries(mu,
		counter("setpoint_source_handler_failures_total", "Errors and panics of handlers and predicates. The events are retried.", "controller", "source"),
		s.open.has, labels)
	s.polls = newSeries(mu,
		counter("setpoint_source_poll_failures_total", "Failed polls of a ticker. They are retried.", "controller", "source"),
		s.open.has, labels)
	s.collectors = collectors{s.dropped, s.handlers, s.polls}
	return s
}

func (s *sources) hooks() *hook.Source {
	failed := func(of *series[hook.SourceRun, prometheus.Counter]) func(hook.SourceFailure) {
		return func(f hook.SourceFailure) { add(of, hook.SourceRun{Controller: f.Controller, Source: f.Source}, 1) }
	}
	return &hook.Source{
		Started: func(r hook.SourceRun) { s.open.start(r, func() struct{} { return struct{}{} }) },
		Stopped: s.stopped,
		Dropped: func(d hook.SourceDropped) {
			add(s.dropped, sourceDrop{hook.SourceRun{Controller: d.Controller, Source: d.Source}, d.Reason}, 1)
		},
		HandlerFailed: failed(s.handlers),
		PollFailed:    failed(s.polls),
	}
}

func (s *sources) stopped(r hook.SourceRun) {
	s.open.stop(r, func() {
		s.dropped.forgetLocked(func(d sourceDrop) bool { return d.SourceRun == r })
		s.handlers.forgetLocked(func(other hook.SourceRun) bool { return other == r })
		s.polls.forgetLocked(func(other hook.SourceRun) bool { return other == r })
	})
}
