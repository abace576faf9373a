// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

type caches struct {
	scraped

	phase, objects, broken, lists, watches, quiet *prometheus.Desc

	states *figures[[]hook.InformerState]
}

var phases = map[hook.Phase]string{
	hook.NotStarted: "not_started", hook.Waiting: "waiting", hook.Syncing: "syncing", hook.Synced: "synced", hook.Failing: "failing",
	hook.Stopped: "stopped",
}

func newCaches(mu *lock) *caches {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"kind"}, labels...), nil)
	}
	c := &caches{
		phase:   desc("setpoint_informers", "Informers by phase.", "phase"),
		objects: desc("setpoint_informer_objects", "Objects in the cache."),
		broken:  desc("setpoint_informer_broken_objects", "Objects that do not fit their Go type, or whose transform panicked."),
		lists:   desc("setpoint_informer_lists_total", "Complete initial lists."),
		watches: desc("setpoint_informer_watches_total", "Opened watches."),
		quiet:   desc("setpoint_informer_quiet_watches_total", "Watches given up because they were silent."),
		states:  newFigures[[]hook.InformerState](mu),
	}
	c.scraped = scraped{[]*prometheus.Desc{c.phase, c.objects, c.broken, c.lists, c.watches, c.quiet}, c.scrape}
	return c
}

func (c *caches) hooks() *hook.Cache {
	return &hook.Cache{
		Started: func(e hook.CacheStarted) { c.states.start(e.Of, "", e.Informers) },
		Stopped: func(e hook.CacheStopped) { c.states.stop(e.Of) },
	}
}

type ofKind struct {
	phases                                 map[hook.Phase]int
	objects, broken, lists, watches, quiet int64
}

func (c *caches) scrape(ch chan<- prometheus.Metric) {
	kinds := map[string]*ofKind{}
	c.states.each(func(_ string, states []hook.InformerState) {
		for _, s := range states {
			if kinds[s.Kind] == nil {
				kinds[s.Kind] = &ofKind{phases: map[hook.Phase]int{}}
			}
			kinds[s.Kind].add(s)
		}
	})
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
