// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

// shards are the metrics of shard groups. A scrape computes the age, which grows also when the
// group reports nothing.
type shards struct {
	collectors

	slots, members, unserved *prometheus.Desc
	changes                  *prometheus.CounterVec

	mu    *lock
	known map[string]hook.ShardGroup // by group; guarded by mu
}

func newShards(mu *lock) *shards {
	s := &shards{
		slots:    desc("setpoint_shard_slots", "Slots that this process owns, and slots of the group that move or are unserved.", "group", "state"),
		members:  desc("setpoint_shard_members", "Members of the group.", "group"),
		unserved: desc("setpoint_shard_unserved_seconds", "Time for which the oldest unserved slot of the group has no member that acts.", "group"),
		changes:  counter("setpoint_shard_slot_changes_total", "Slots that this process has acquired, released or lost.", "group", "event"),
		mu:       mu, known: map[string]hook.ShardGroup{},
	}
	s.collectors = collectors{s.changes, scraped{[]*prometheus.Desc{s.slots, s.members, s.unserved}, s.scrape}}
	return s
}

func (s *shards) observe(e hook.Event) bool {
	switch e := e.(type) {
	case *hook.ShardGroup:
		s.observed(e)
	case *hook.ShardSlots:
		s.changes.WithLabelValues(e.Group, string(e.Change)).Add(float64(e.Slots))
	default:
		return false
	}
	return true
}

func (s *shards) observed(g *hook.ShardGroup) {
	s.mu.Lock()
	_, before := s.known[g.Group]
	s.known[g.Group] = *g
	s.mu.Unlock()
	if before {
		return
	}
	for _, change := range []hook.ShardChange{hook.ShardsAcquired, hook.ShardsReleased, hook.ShardsLost} {
		s.changes.WithLabelValues(g.Group, string(change))
	}
}

func (s *shards) scrape(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	known := maps.Clone(s.known)
	s.mu.Unlock()
	for group, g := range known {
		gauge := func(d *prometheus.Desc, n float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, append([]string{group}, labels...)...)
		}
		gauge(s.slots, float64(g.Owned), "owned")
		gauge(s.slots, float64(g.Moving), "moving")
		gauge(s.slots, float64(g.Unserved), "unserved")
		gauge(s.members, float64(g.Members))
		age := 0.0
		if !g.UnservedSince.IsZero() {
			age = max(0, time.Since(g.UnservedSince)).Seconds()
		}
		gauge(s.unserved, age)
	}
}
