// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

// leases are the metrics of electors. The leader_election_ ones are as in
// k8s.io/component-base/metrics/prometheus/clientgo/leaderelection.
type leases struct {
	collectors

	master, trouble                           *prometheus.GaugeVec
	slowpath, terms, renewals, unsynced, seen *prometheus.CounterVec
	renewal, takeover                         *prometheus.HistogramVec
}

func newLeases() *leases {
	l := &leases{
		master:   gauge("leader_election_master_status", "1 while this process holds the Lease, else 0.", "name"),
		slowpath: counter("leader_election_slowpath_total", "Renewals that took more than one request.", "name"),
		terms:    counter("setpoint_leader_election_terms_total", "Acquired, lost and released terms.", "name", "event"),
		renewals: counter("setpoint_leader_election_renewals_total", "Attempts to renew the Lease.", "name", "result"),
		renewal: histogram("setpoint_leader_election_renewal_duration_seconds", "Time of attempts to renew the Lease.",
			[]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15}, "name"),
		takeover: histogram("setpoint_leader_election_takeover_seconds", "Time without an observed leader before this process took over.",
			[]float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 12, 15, 16, 18, 20, 25, 30, 60, 120, 300}, "name"),
		seen:     counter("setpoint_leader_election_leader_changes_total", "Observed changes to another leader.", "name"),
		unsynced: counter("setpoint_leader_election_unsynced_campaigns_total", "Campaigns before all controllers were synced.", "name"),
		trouble:  gauge("setpoint_leader_election_trouble", "1 while the Lease cannot be read or written, else 0.", "name"),
	}
	l.collectors = collectors{l.master, l.slowpath, l.terms, l.renewals, l.renewal, l.takeover, l.seen, l.unsynced, l.trouble}
	return l
}

func (l *leases) observe(e hook.Event) bool {
	switch e := e.(type) {
	case *hook.LeaseCampaign:
		l.begin(e.Lease)
		l.master.WithLabelValues(e.Lease).Set(0)
	case *hook.LeaseTakeover:
		l.takeover.WithLabelValues(e.Lease).Observe(e.Gap.Seconds())
	case *hook.LeaseAcquired:
		l.begin(e.Lease) // a host's elector does not report LeaseCampaign
		l.master.WithLabelValues(e.Lease).Set(1)
		l.terms.WithLabelValues(e.Lease, "acquired").Inc()
	case *hook.LeaseRenewal:
		result := "success"
		if e.Err != nil {
			result = "error"
		}
		l.renewals.WithLabelValues(e.Lease, result).Inc()
		l.renewal.WithLabelValues(e.Lease).Observe(e.Took.Seconds())
		if e.Slowpath && e.Err == nil {
			l.slowpath.WithLabelValues(e.Lease).Inc()
		}
	case *hook.LeaseLost:
		l.master.WithLabelValues(e.Lease).Set(0)
		l.terms.WithLabelValues(e.Lease, "lost").Inc()
	case *hook.LeaseReleased:
		l.master.WithLabelValues(e.Lease).Set(0)
		if e.Err == nil {
			l.terms.WithLabelValues(e.Lease, "released").Inc()
		}
	case *hook.LeaseHolder:
		l.seen.WithLabelValues(e.Lease).Inc()
	case *hook.LeaseUnsynced:
		l.unsynced.WithLabelValues(e.Lease).Inc()
	case *hook.LeaseTrouble:
		trouble := 0.0
		if e.Err != nil {
			trouble = 1
		}
		l.trouble.WithLabelValues(e.Lease).Set(trouble)
	default:
		return false
	}
	return true
}

func (l *leases) begin(lease string) {
	l.trouble.WithLabelValues(lease)
	for _, event := range []string{"acquired", "lost", "released"} {
		l.terms.WithLabelValues(lease, event)
	}
	for _, result := range []string{"success", "error"} {
		l.renewals.WithLabelValues(lease, result)
	}
	for _, c := range []*prometheus.CounterVec{l.slowpath, l.seen, l.unsynced} {
		c.WithLabelValues(lease)
	}
}
