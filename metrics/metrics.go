// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	promcollectors "github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/setpoint-dev/setpoint/hook"
)

// Metrics counts what a program does, and serves the counts. It serves any number of managers,
// controllers and queues, and all methods are safe for concurrent use. Controllers with the same
// name share their series, which end with the last of these controllers.
type Metrics struct {
	hook     *hook.Hook
	gatherer prometheus.Gatherer // nil: the Registerer is no Gatherer
}

// New registers the metrics of Setpoint with r. If r is also a Gatherer, as a *prometheus.Registry
// is, New adds the Go and process metrics, unless their names are taken: register collectors of
// your own before New.
//
// To change the names, wrap r: prometheus.WrapRegistererWithPrefix("website_", registry). A wrapped
// Registerer is no Gatherer: see [Metrics.Handler].
//
// If r is nil or has these metrics already, or if a name is taken, New returns an error and
// registers nothing.
func New(r prometheus.Registerer) (*Metrics, error) {
	if r == nil {
		return nil, errors.New("metrics.New: the Registerer is nil; prometheus.NewRegistry makes one")
	}
	mu := &lock{}
	controllers := newControllers(mu)
	queues, sources, caches, requests, leases := newQueues(mu), newSources(mu), newCaches(mu), newRequests(mu, controllers.open.has), newLeases()
	events, webhooks, shards := newEvents(mu), newWebhooks(mu), newShards(mu)
	controllers.goneLocked = requests.forgetLocked
	all := collectors{queues, controllers, sources, caches, requests, leases, shards, events, webhooks}
	switch err := r.Register(all); {
	case errors.As(err, new(prometheus.AlreadyRegisteredError)):
		return nil, errors.New("metrics.New: this registry has the metrics of Setpoint already; use the Metrics of the first call, which serves any number of managers")
	case err != nil:
		return nil, fmt.Errorf("metrics.New: names are taken; wrap the registry with prometheus.WrapRegistererWithPrefix, or use one of its own: %w", err)
	}
	m := &Metrics{hook: hook.New(func(e hook.Event) {
		// Each reports whether the event is its own. The most frequent ones come first.
		_ = queues.observe(e) || controllers.observe(e) || requests.observe(e) || sources.observe(e) || caches.observe(e) ||
			leases.observe(e) || shards.observe(e) || events.observe(e) || webhooks.observe(e)
	})}
	if g, ok := r.(prometheus.Gatherer); ok {
		m.gatherer = g
		// After an error, the registry has these metrics already, in these or other variants.
		_ = r.Register(promcollectors.NewGoCollector(promcollectors.WithGoCollectorRuntimeMetrics(promcollectors.MetricsAll)))
		_ = r.Register(promcollectors.NewProcessCollector(promcollectors.ProcessCollectorOpts{}))
	}
	return m, nil
}

// Hook returns the Hook that feeds the metrics, the same at each call. manager.Options.Metrics
// includes it. It is for programs without a manager, or with another handler for the registry.
func (m *Metrics) Hook() *hook.Hook { return m.hook }

// Handler returns a handler that serves all metrics of the registry. It returns an error if the
// Registerer given to New is no prometheus.Gatherer.
func (m *Metrics) Handler() (http.Handler, error) {
	if m.gatherer == nil {
		return nil, errors.New("metrics: the Registerer given to metrics.New is no prometheus.Gatherer, such as one made by prometheus.WrapRegistererWithPrefix, so it cannot be served; " +
			"set manager.Options.Hook to Metrics.Hook instead of manager.Options.Metrics, and serve the registry with promhttp.HandlerFor")
	}
	return promhttp.HandlerFor(m.gatherer, promhttp.HandlerOpts{}), nil
}
