// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/cache"
)

// Conditions registers a collector that counts the conditions of the objects of a handle at each
// scrape; see "Conditions" in the package doc. The function of returns an object's conditions, and
// must not change the object:
//
//	err := metrics.Conditions(registry, websites, func(w *v1alpha1.Website) []metav1.Condition {
//		return w.Status.Conditions
//	})
//
// Before the initial list and after the handle's release there are no series. Conditions returns an
// error if an argument is nil, or if r refuses the collector. Register one handle of a kind.
func Conditions[T cache.Object](r prometheus.Registerer, h *cache.Handle[T], of func(T) []metav1.Condition) error {
	if r == nil || h == nil || of == nil {
		return errors.New("metrics.Conditions: the Registerer, the handle or the function is nil")
	}
	kind := cmp.Or(h.GroupVersionKind().GroupKind().String(), h.String())
	constant := prometheus.Labels{"kind": label(kind)}
	c := &conditions[T]{
		handle: h.Shared(), of: of,
		objects: prometheus.NewDesc("setpoint_conditions", "Objects that have the condition.", []string{"type", "status", "reason"}, constant),
		oldest: prometheus.NewDesc("setpoint_condition_oldest_seconds", "Time since the earliest transition to the current status of the condition.",
			[]string{"type", "status"}, constant),
	}
	c.scraped = scraped{[]*prometheus.Desc{c.objects, c.oldest}, c.scrape}
	if err := r.Register(c); err != nil {
		return fmt.Errorf("metrics.Conditions: register one handle of the kind %s, or wrap the registry with prometheus.WrapRegistererWithPrefix: %w", kind, err)
	}
	return nil
}

type conditions[T cache.Object] struct {
	scraped

	handle          *cache.Handle[T]
	of              func(T) []metav1.Condition
	objects, oldest *prometheus.Desc
}

type (
	conditionStatus struct {
		name   string
		status metav1.ConditionStatus
	}
	conditionReason struct {
		conditionStatus

		reason string
	}
)

func (c *conditions[T]) scrape(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a scrape does not wait for the initial list
	counts, oldest := map[conditionReason]int{}, map[conditionStatus]time.Time{}
	for obj, err := range c.handle.All(ctx, cache.ListOptions{}) {
		if _, undecodable := errors.AsType[*cache.UndecodableError](err); undecodable {
			break // setpoint_informer_broken_objects counts these
		}
		if err != nil {
			return // the metrics of informers show it
		}
		for _, one := range c.of(obj) {
			s := conditionStatus{one.Type, one.Status}
			counts[conditionReason{s, one.Reason}]++
			at := one.LastTransitionTime.Time
			if since, ok := oldest[s]; !at.IsZero() && (!ok || at.Before(since)) {
				oldest[s] = at
			}
		}
	}
	for key, n := range bounded(counts) {
		ch <- prometheus.MustNewConstMetric(c.objects, prometheus.GaugeValue, float64(n), label(key.name), label(string(key.status)), label(key.reason))
	}
	for i, key := range slices.SortedFunc(maps.Keys(oldest), compareStatus) {
		if i < limit {
			age := max(0, time.Since(oldest[key])).Seconds()
			ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, age, label(key.name), label(string(key.status)))
		}
	}
}

func bounded(counts map[conditionReason]int) map[conditionReason]int {
	if len(counts) <= limit {
		return counts
	}
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b conditionReason) int {
		return cmp.Or(compareStatus(a.conditionStatus, b.conditionStatus), cmp.Compare(a.reason, b.reason))
	})
	for _, key := range keys[limit:] {
		counts[conditionReason{conditionStatus{other, other}, other}] += counts[key]
		delete(counts, key)
	}
	return counts
}

func compareStatus(a, b conditionStatus) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.status, b.status))
}
