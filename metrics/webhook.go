// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

// webhooks are the metrics of webhooks. The controller_runtime_ ones are as in
// sigs.k8s.io/controller-runtime/pkg/webhook.
type webhooks struct {
	collectors

	latency      *series[string, prometheus.Observer] // by path
	requests     *series[webhookCode, prometheus.Counter]
	inFlight     *series[string, prometheus.Gauge] // by path
	panics       *prometheus.CounterVec            // without labels, of admission
	conversion   *prometheus.CounterVec
	rejections   *series[webhookRejection, prometheus.Counter]
	certificates *prometheus.GaugeVec
}

type webhookCode struct {
	path string
	code int
}

type webhookRejection struct{ path, reason string }

func newWebhooks(mu *lock) *webhooks {
	w := &webhooks{}
	path := func(path string) []string { return []string{path} }
	w.latency = newSeries(mu,
		histogram("controller_runtime_webhook_latency_seconds", "Time from a request to its answer.", prometheus.ExponentialBuckets(10e-9, 10, 12), "webhook"),
		always, path)
	w.requests = newSeries(mu, counter("controller_runtime_webhook_requests_total", "Answered requests, by HTTP status.", "webhook", "code"),
		always, func(c webhookCode) []string { return []string{c.path, strconv.Itoa(c.code)} })
	w.inFlight = newSeries(mu, gauge("controller_runtime_webhook_requests_in_flight", "Requests without an answer yet.", "webhook"), always, path)
	w.panics = counter("controller_runtime_webhook_panics_total", "Panics of admission webhooks.")
	w.conversion = counter("controller_runtime_conversion_webhook_panics_total", "Panics of conversion webhooks.")
	w.rejections = newSeries(mu, counter("setpoint_webhook_rejections_total", "Admission requests that were rejected.", "webhook", "reason"),
		always, func(r webhookRejection) []string { return []string{r.path, r.reason} })
	w.certificates = gauge("setpoint_webhook_certificate_expiration_timestamp_seconds", "Unix time at which the newest certificate expires.", "type")
	w.collectors = collectors{w.latency, w.requests, w.inFlight, w.panics, w.conversion, w.rejections, w.certificates}
	return w
}

func (w *webhooks) observe(e hook.Event) bool {
	switch e := e.(type) {
	case *hook.WebhookRequest:
		if g, ok := w.inFlight.of(e.Path); ok {
			g.Inc()
		}
		w.requests.of(webhookCode{e.Path, 200}) // the usual series begin with 0
		w.requests.of(webhookCode{e.Path, 500})
		w.panics.WithLabelValues()
		w.conversion.WithLabelValues()
	case *hook.WebhookAnswer:
		w.answered(e)
	case *hook.WebhookCertificate:
		of := "serving"
		if e.CA {
			of = "ca"
		}
		w.certificates.WithLabelValues(of).Set(float64(e.NotAfter.Unix()))
	default:
		return false
	}
	return true
}

func (w *webhooks) answered(a *hook.WebhookAnswer) {
	if g, ok := w.inFlight.of(a.Path); ok {
		g.Dec()
	}
	if h, ok := w.latency.of(a.Path); ok {
		h.Observe(a.Took.Seconds())
	}
	add(w.requests, webhookCode{a.Path, a.Code}, 1)
	switch {
	case a.Panicked && a.Conversion:
		w.conversion.WithLabelValues().Inc()
	case a.Panicked:
		w.panics.WithLabelValues().Inc()
	case a.Code == 200 && !a.Allowed && !a.Conversion:
		add(w.rejections, webhookRejection{a.Path, a.Reason}, 1)
	}
}
