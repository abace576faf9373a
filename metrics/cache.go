// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

type caches struct {
	scraped

	phase, broken, lists, watches, quiet *prometheus.Desc
	objects, bytes, decodes              *prometheus.Desc // by scope

	states *figures[[]hook.InformerState]
}

var phases = map[hook.Phase]string{
	hook.NotStarted: "not_started", hook.Waiting: "waiting", hook.Syncing: "syncing", hook.Synced: "synced", hook.Failing: "failing",
	hook.Stopped: "stopped",
}

func newCaches(mu *lock) *caches {
	c := &caches{
		phase:   desc("setpoint_informers", "Informers by phase.", "kind", "phase"),
		objects: desc("setpoint_informer_objects", "Objects in the cache.", "kind", "scope", "storage"),
		bytes:   desc("setpoint_informer_bytes", "Kept bytes of packed objects, estimated from a sample.", "kind", "scope", "storage"),
		decodes: desc("setpoint_informer_decodes_total", "How often a packed object was decoded.", "kind", "scope", "storage"),
		broken:  desc("setpoint_informer_broken_objects", "Objects that do not fit their Go type, or whose transform panicked.", "kind"),
		lists:   desc("setpoint_informer_lists_total", "Complete initial lists.", "kind"),
		watches: desc("setpoint_informer_watches_total", "Opened watches.", "kind"),
		quiet:   desc("setpoint_informer_quiet_watches_total", "Watches given up because they were silent.", "kind"),
		states:  newFigures[[]hook.InformerState](mu),
	}
	c.scraped = scraped{[]*prometheus.Desc{c.phase, c.objects, c.bytes, c.decodes, c.broken, c.lists, c.watches, c.quiet}, c.scrape}
	return c
}

func (c *caches) observe(e hook.Event) bool {
	switch e := e.(type) {
	case *hook.CacheStarted:
		c.states.start(e.Of, "", e.Informers)
	case *hook.CacheStopped:
		c.states.stop(e.Of)
	default:
		return false
	}
	return true
}

type ofKind struct {
	phases                        map[hook.Phase]int
	broken, lists, watches, quiet int64
}

// scope is what informers that differ only in cluster, namespace or name have in common.
type scope struct{ kind, selection, storage string }

type ofScope struct{ objects, bytes, decodes int64 }

func (c *caches) scrape(ch chan<- prometheus.Metric) {
	kinds, scopes := map[string]*ofKind{}, map[scope]*ofScope{}
	c.states.each(func(_ string, states []hook.InformerState) {
		for _, s := range states {
			k, o := entry(kinds, s.Kind), entry(scopes, scope{s.Kind, s.Selection, s.Storage})
			k.add(s)
			o.objects, o.bytes, o.decodes = o.objects+int64(s.Objects), o.bytes+s.Bytes, o.decodes+s.Decodes
		}
	})
	for kind, k := range kinds {
		kind = label(kind)
		for phase, name := range phases {
			ch <- prometheus.MustNewConstMetric(c.phase, prometheus.GaugeValue, float64(k.phases[phase]), kind, name)
		}
		ch <- prometheus.MustNewConstMetric(c.broken, prometheus.GaugeValue, float64(k.broken), kind)
		for d, n := range map[*prometheus.Desc]int64{c.lists: k.lists, c.watches: k.watches, c.quiet: k.quiet} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), kind)
		}
	}
	for s, o := range fewScopes(scopes) {
		send := func(d *prometheus.Desc, t prometheus.ValueType, n int64) {
			ch <- prometheus.MustNewConstMetric(d, t, float64(n), s.kind, s.selection, s.storage)
		}
		send(c.objects, prometheus.GaugeValue, o.objects)
		if s.storage == packed {
			send(c.bytes, prometheus.GaugeValue, o.bytes)
			send(c.decodes, prometheus.CounterValue, o.decodes)
		}
	}
}

// packed is a storage of hook.InformerState.
const packed = "packed"

func entry[K comparable, V any](of map[K]*V, key K) *V {
	if of[key] == nil {
		of[key] = new(V)
	}
	return of[key]
}

func (k *ofKind) add(s hook.InformerState) {
	if k.phases == nil {
		k.phases = map[hook.Phase]int{}
	}
	k.phases[s.Phase]++
	k.broken += int64(s.BrokenCount)
	k.lists += s.Lists
	k.watches += s.Watches
	k.quiet += s.Quiet
}

// fewScopes sums all scopes beyond the limit, by their storage. The order of names decides, so that
// the sums are the same scopes at the next scrape.
func fewScopes(all map[scope]*ofScope) map[scope]ofScope {
	names := slices.SortedFunc(maps.Keys(all), func(a, b scope) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.selection, b.selection), cmp.Compare(a.storage, b.storage))
	})
	few := make(map[scope]ofScope, min(len(all), limit+1))
	for n, name := range names {
		as := scope{label(name.kind), label(name.selection), name.storage}
		if n >= limit {
			as.kind, as.selection = other, other
		}
		one, sum := all[name], few[as]
		few[as] = ofScope{sum.objects + one.objects, sum.bytes + one.bytes, sum.decodes + one.decodes}
	}
	return few
}
