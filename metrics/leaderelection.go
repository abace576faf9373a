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

func (l *leases) hooks() *hook.LeaderElection {
	return &hook.LeaderElection{
		Campaigning: func(lease string) {
			l.begin(lease)
			l.master.WithLabelValues(lease).Set(0)
		},
		TookOver: func(e hook.LeaseTakeover) { l.takeover.WithLabelValues(e.Lease).Observe(e.Gap.Seconds()) },
		Acquired: func(lease string) {
			l.begin(lease) // a host's elector does not report Campaigning
			l.master.WithLabelValues(lease).Set(1)
			l.terms.WithLabelValues(lease, "acquired").Inc()
		},
		Renewed: l.renewed,
		Lost: func(lease string) {
			l.master.WithLabelValues(lease).Set(0)
			l.terms.WithLabelValues(lease, "lost").Inc()
		},
		Released: func(lease string, err error) {
			l.master.WithLabelValues(lease).Set(0)
			if err == nil {
				l.terms.WithLabelValues(lease, "released").Inc()
			}
		},
		Leader:             func(lease, _ string) { l.seen.WithLabelValues(lease).Inc() },
		CampaignedUnsynced: func(lease string) { l.unsynced.WithLabelValues(lease).Inc() },
		Trouble: func(lease string, err error) {
			trouble := 0.0
			if err != nil {
				trouble = 1
			}
			l.trouble.WithLabelValues(lease).Set(trouble)
		},
	}
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

func (l *leases) renewed(r hook.LeaseRenewal) {
	result := "success"
	if r.Err != nil {
		result = "error"
	}
	l.renewals.WithLabelValues(r.Lease, result).Inc()
	l.renewal.WithLabelValues(r.Lease).Observe(r.Took.Seconds())
	if r.Slowpath && r.Err == nil {
		l.slowpath.WithLabelValues(r.Lease).Inc()
	}
}
