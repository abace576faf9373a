// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

// caches are the metrics of informers. All but the changes are asked for by each scrape.
type caches struct {
	phase, objects, broken, lists, watches, quiet *prometheus.Desc

	mu     sync.Mutex                          // guards what follows
	states map[any]func() []hook.InformerState // by the cache
}

// phases are where an informer may stand, and what that is called.
var phases = map[hook.Phase]string{
	hook.NotStarted: "not_started", hook.Waiting: "waiting", hook.Syncing: "syncing", hook.Synced: "synced", hook.Failing: "failing",
	hook.Stopped: "stopped",
}

func newCaches() *caches {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"kind"}, labels...), nil)
	}
	return &caches{
		phase:   desc("setpoint_informers", "Informers, by where they stand.", "phase"),
		objects: desc("setpoint_informer_objects", "Objects in the local copies."),
		broken:  desc("setpoint_informer_broken_objects", "Objects that do not fit their Go type, or over which a transform panicked."),
		lists:   desc("setpoint_informer_lists_total", "Initial lists that were read to their end."),
		watches: desc("setpoint_informer_watches_total", "Watches that were opened."),
		quiet:   desc("setpoint_informer_quiet_watches_total", "Watches that were given up because nothing came."),
		states:  map[any]func() []hook.InformerState{},
	}
}

func (c *caches) hooks() *hook.Cache {
	return &hook.Cache{
		Started: func(e hook.CacheStarted) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.states[e.Of] = e.Informers
		},
		Stopped: func(e hook.CacheStopped) {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.states, e.Of)
		},
	}
}

// Describe implements prometheus.Collector.
func (c *caches) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.phase, c.objects, c.broken, c.lists, c.watches, c.quiet} {
		ch <- d
	}
}

// ofKind is what is known of the informers of a kind.
type ofKind struct {
	phases                                 map[hook.Phase]int
	objects, broken, lists, watches, quiet int64
}

// Collect implements prometheus.Collector.
func (c *caches) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	asks := maps.Clone(c.states)
	c.mu.Unlock()
	kinds := map[string]*ofKind{}
	for _, ask := range asks { // not under our lock
		for _, s := range ask() {
			if kinds[s.Kind] == nil {
				kinds[s.Kind] = &ofKind{phases: map[hook.Phase]int{}}
			}
			kinds[s.Kind].add(s)
		}
	}
	for kind, k := range kinds {
		kind = label(kind)
		for phase, name := range phases {
			ch <- prometheus.MustNewConstMetric(c.phase, prometheus.GaugeValue, float64(k.phases[phase]), kind, name)
		}
		for d, n := range map[*prometheus.Desc]int64{c.objects: k.objects, c.broken: k.broken} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), kind)
		}
		for d, n := range map[*prometheus.Desc]int64{c.lists: k.lists, c.watches: k.watches, c.quiet: k.quiet} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), kind)
		}
	}
}

func (k *ofKind) add(s hook.InformerState) {
	k.phases[s.Phase]++
	k.objects += int64(s.Objects)
	k.broken += int64(s.BrokenCount)
	k.lists += s.Lists
	k.watches += s.Watches
	k.quiet += s.Quiet
}
