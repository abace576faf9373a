// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"errors"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	theirmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// collector adds the metrics of Setpoint's managers to the registry of controller-runtime. Both
// have the same names for the same things. A registry takes each name once, so ours are in
// registries of their own, and merged when the registry is read.
type collector struct {
	mu  sync.Mutex
	all map[prometheus.Gatherer]bool
}

// sharedCollector returns the process's collector. The registry keeps it.
func sharedCollector() (*collector, error) {
	c := &collector{all: map[prometheus.Gatherer]bool{}}
	known := owner{prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "setpoint_bridge", Help: "1: the process has used a manager of package crbridge.",
	}), c}
	known.Set(1)
	err := theirmetrics.Registry.Register(known)
	if taken, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if o, ok := taken.ExistingCollector.(owner); ok {
			return o.of, nil
		}
	}
	if err == nil {
		err = theirmetrics.Registry.Register(c)
	}
	return c, err
}

// owner is how a second manager finds the collector of the first one.
type owner struct {
	prometheus.Gauge

	of *collector
}

// add adds the metrics of a manager until remove is called.
func (c *collector) add(g prometheus.Gatherer) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[g] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, g)
	}
}

// Describe sends nothing: the registry then checks no names.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends what controller-runtime does not count itself.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	all := make([]prometheus.Gatherer, 0, len(c.all))
	for g := range c.all {
		all = append(all, g)
	}
	c.mu.Unlock()
	sent := map[string]bool{}
	for _, g := range all {
		families, err := g.Gather()
		if err != nil {
			to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		}
		for _, f := range families {
			c.send(to, f, sent)
		}
	}
}

func (c *collector) send(to chan<- prometheus.Metric, f *dto.MetricFamily, sent map[string]bool) {
	name, help := f.GetName(), f.GetHelp()
	if theirs, ok := theirHelp(name); ok && theirs == "" {
		return
	} else if ok {
		help = theirs
	}
	desc := prometheus.NewDesc(name, help, nil, nil)
	for _, m := range f.GetMetric() {
		key := name
		for _, l := range m.GetLabel() {
			key += "\xff" + l.GetName() + "\xff" + l.GetValue()
		}
		if !sent[key] { // two managers may count the same, such as of the process
			sent[key] = true
			to <- metric{desc, m}
		}
	}
}

// metric is one that another registry has gathered.
type metric struct {
	desc *prometheus.Desc
	of   *dto.Metric
}

func (m metric) Desc() *prometheus.Desc { return m.desc }

func (m metric) Write(to *dto.Metric) error {
	to.Label, to.Counter, to.Gauge, to.Histogram, to.Summary, to.Untyped = m.of.Label, m.of.Counter, m.of.Gauge, m.of.Histogram, m.of.Summary, m.of.Untyped
	return nil
}

// theirHelp returns controller-runtime's text for a name that it has, too: the registry refuses two
// texts. It is empty if controller-runtime counts for both.
func theirHelp(name string) (help string, ok bool) {
	if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
		return "", true
	}
	help, ok = map[string]string{
		"rest_client_requests_total":                         "",
		"rest_client_request_duration_seconds":               "", // on request
		"controller_runtime_webhook_panics_total":            "",
		"controller_runtime_conversion_webhook_panics_total": "",
		"controller_runtime_webhook_latency_seconds":         "Histogram of the latency of processing admission requests",
		"controller_runtime_webhook_requests_total":          "Total number of admission requests by HTTP status code.",
		"controller_runtime_webhook_requests_in_flight":      "Current number of admission requests being served.",
		"controller_runtime_reconcile_total":                 "Total number of reconciliations per controller",
		"controller_runtime_reconcile_errors_total":          "Total number of reconciliation errors per controller",
		"controller_runtime_terminal_reconcile_errors_total": "Total number of terminal reconciliation errors per controller",
		"controller_runtime_reconcile_panics_total":          "Total number of reconciliation panics per controller",
		"controller_runtime_reconcile_timeouts_total":        "Total number of reconciliation timeouts per controller",
		"controller_runtime_reconcile_time_seconds":          "Length of time per reconciliation per controller",
		"controller_runtime_max_concurrent_reconciles":       "Maximum number of concurrent reconciles per controller",
		"controller_runtime_active_workers":                  "Number of currently used workers per controller",
		"leader_election_master_status":                      "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
		"leader_election_slowpath_total":                     "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.",
		"workqueue_depth":                                    "Current depth of workqueue by workqueue and priority",
		"workqueue_adds_total":                               "Total number of adds handled by workqueue",
		"workqueue_queue_duration_seconds":                   "How long in seconds an item stays in workqueue before being requested",
		"workqueue_work_duration_seconds":                    "How long in seconds processing an item from workqueue takes.",
		"workqueue_unfinished_work_seconds":                  "How many seconds of work has been done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
		"workqueue_longest_running_processor_seconds":        "How many seconds has the longest running processor for workqueue been running.",
		"workqueue_retries_total":                            "Total number of items added to the workqueue with a non-zero delay (rate-limited requeues, explicit RequeueAfter or AddAfter calls)",
	}[name]
	return help, ok
}
