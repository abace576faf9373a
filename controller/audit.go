// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/owned"
)

const (
	// auditPeriod is the time between two censuses of the keys.
	auditPeriod = 10 * time.Second
	// auditPart limits the time of censuses to 1 part in 100.
	auditPart = 100
)

// audit counts the keys in the caches again and again, so that the group can compare a sample
// of them with samples of other members, until ctx ends.
func (t *lead[K]) audit(ctx context.Context) {
	c := t.controller
	d := c.shards.of.Load()
	d.owned.PutCensus(c.name, nil)
	defer d.owned.DropCensus(c.name)
	for ctx.Err() == nil {
		began := time.Now()
		if census := c.census(ctx, d); census != nil {
			d.owned.PutCensus(c.name, census)
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(auditPeriod, auditPart*time.Since(began))):
		}
	}
}

// census returns a sample of all keys that name objects in the caches. It returns nil if a cache
// may be old: then the newest census stays.
func (c *Controller[K]) census(ctx context.Context, d *division) *owned.Census {
	all := owned.NewCensus(d.owned.From(), func(s owned.Slot) bool { return d.serves[s].Load() != nil })
	for _, i := range c.inputs.all() {
		s, ok := i.source.(interface {
			Known(ctx context.Context, do func(K, types.UID)) error
		})
		if !ok {
			continue
		}
		count := func(key K, uid types.UID) { c.shards.count(d, all, key, uid) }
		if i.Stale() != nil || !isSynced(ctx, i) || s.Known(ctx, count) != nil {
			return nil
		}
	}
	return all
}

// count adds a key that has a slot.
func (s *shards[K]) count(d *division, all *owned.Census, key K, uid types.UID) {
	if of, ok := s.slotOf(d, key); ok {
		all.Add(s.place(key), uid, of)
	}
}
