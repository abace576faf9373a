// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

// requests are the metrics of clients. The rest_client_ ones are as in
// k8s.io/component-base/metrics/prometheus/restclient.
type requests struct {
	collectors

	mu    *lock
	hosts map[string]int // number of open clients, guarded by mu

	answered *series[answer, prometheus.Counter]
	took     *series[place, prometheus.Observer]
	made     *series[request, prometheus.Counter]
	unknown  *series[write, prometheus.Counter]
	unfenced *series[write, prometheus.Counter]
	skipped  *series[write, prometheus.Counter]
}

type answer struct {
	status       int
	method, host string
}

type place struct{ method, host string }

type request struct {
	controller, verb             string
	group, resource, subresource string
	status                       int
}

type write struct{ by, group, resource, subresource string }

func newRequests(mu *lock, controller func(name string) bool) *requests {
	known := func(w write) bool { return w.by == "" || controller(w.by) }
	hosts := map[string]int{}
	r := &requests{
		mu: mu, hosts: hosts,
		answered: newSeries(mu, counter("rest_client_requests_total", "HTTP requests by status code.", "code", "method", "host"),
			func(a answer) bool { return hosts[a.host] > 0 },
			func(a answer) []string { return []string{code(a.status), a.method, a.host} }),
		took: newSeries(mu, histogram("rest_client_request_duration_seconds", "Time of HTTP requests until the answer began, without watches.",
			[]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}, "verb", "host"),
			func(p place) bool { return hosts[p.host] > 0 },
			func(p place) []string { return []string{p.method, p.host} }),
		made: newSeries(mu, counter("setpoint_api_requests_total", "Requests of a controller by status code.", "controller", "verb", "resource", "code"),
			func(r request) bool { return known(write{by: r.controller}) },
			func(r request) []string {
				return []string{r.controller, r.verb, resource(r.group, r.resource, r.subresource), code(r.status)}
			}),
		unknown: newSeries(mu, counter("setpoint_api_unclear_writes_total", "Writes whose outcome or version is unknown.", "controller", "resource"),
			known, write.labels),
		unfenced: newSeries(mu, counter("setpoint_unfenced_writes_total", "Writes without a term of leadership.", "verb", "resource"),
			always, write.labels),
		skipped: newSeries(mu, counter("setpoint_skipped_applies_total", "Applies that were not sent because they are no-ops.", "controller", "resource"),
			known, write.labels),
	}
	r.collectors = collectors{r.answered, r.took, r.made, r.unknown, r.unfenced, r.skipped}
	return r
}

// code returns the label code as in component-base.
func code(status int) string {
	if status == 0 {
		return "<error>"
	}
	return strconv.Itoa(status)
}

func (w write) labels() []string { return []string{w.by, resource(w.group, w.resource, w.subresource)} }

func resource(group, resource, subresource string) string {
	if group != "" {
		resource += "." + group
	}
	if subresource != "" {
		resource += "/" + subresource
	}
	return resource
}

func (r *requests) observe(e hook.Event) bool {
	switch e := e.(type) {
	case *hook.ClientOpened:
		r.opened(e.Host)
	case *hook.ClientClosed:
		r.closed(e.Host)
	case *hook.APIAnswer:
		add(r.answered, answer{e.Status, e.Method, e.Host}, 1)
		if !e.Watch {
			if h, ok := r.took.of(place{e.Method, e.Host}); ok {
				h.Observe(e.Took.Seconds())
			}
		}
	case *hook.APIRequest:
		add(r.made, request{e.Controller, e.Verb, e.Group, e.Resource, e.Subresource, e.Status}, 1)
		if e.Unknown != "" {
			add(r.unknown, write{e.Controller, e.Group, e.Resource, e.Subresource}, 1)
		}
	case *hook.Unfenced:
		add(r.unfenced, write{e.Verb, e.Group, e.Resource, e.Subresource}, 1)
	case *hook.SkippedApply:
		add(r.skipped, write{e.Controller, e.Group, e.Resource, e.Subresource}, 1)
	default:
		return false
	}
	return true
}

func (r *requests) opened(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts[host]++
}

// closed forgets a host with its last client. What is still in flight then is not counted, as it
// would bring the series back.
func (r *requests) closed(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosts[host]--; r.hosts[host] > 0 {
		return
	}
	delete(r.hosts, host)
	r.answered.forgetLocked(func(a answer) bool { return a.host == host })
	r.took.forgetLocked(func(p place) bool { return p.host == host })
}

func (r *requests) forgetLocked(controller string) {
	r.made.forgetLocked(func(of request) bool { return of.controller == controller })
	for _, writes := range []*series[write, prometheus.Counter]{r.unknown, r.skipped} {
		writes.forgetLocked(func(w write) bool { return w.by == controller })
	}
}
