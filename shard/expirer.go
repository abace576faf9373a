// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// proof proves that the sessions of a member before it are over: its Lease was acquired
// since.
type proof struct {
	of    slots.ID
	since time.Time // when the Lease was seen to change last
}

// expirer proves the deaths of silent members, and deletes Leases without a member. Only the
// session's goroutine uses it.
type expirer struct {
	m *member

	proofs map[slots.ID]proof   // of deaths, not stored yet
	tried  map[string]time.Time // when this session last tried to acquire the Leases of others
	swept  time.Time            // when it last tried to delete one
}

// expire acquires the Leases of silent members, by the rule of L1.
func (u *expirer) expire(ctx context.Context, a *slots.Assignment) {
	for _, id := range u.m.others(a) {
		of := u.m.registry.get(id.Name)
		// It has released its Lease, and not left; or it has restarted, and not joined.
		later := of.released
		if of.heartbeat.author == oneAuthor {
			later = max(later, of.heartbeat.session)
		}
		if later > id.Term {
			u.proofs[id] = proof{slots.ID{Name: id.Name, Term: later}, of.at}
			continue
		}
		if _, proved := u.proofs[id]; proved || u.m.left(of) > 0 || time.Since(u.tried[id.Name]) < pollInterval {
			continue
		}
		u.tried[id.Name] = time.Now()
		if term, ok := u.acquire(ctx, id.Name, of); ok {
			u.proofs[id] = proof{slots.ID{Name: id.Name, Term: term}, of.at}
			u.m.log.Warn("a replica has not renewed its Lease; its slots are given to others", "replica", id.String(), "silentFor", time.Since(of.at).Round(time.Millisecond).String())
		}
	}
}

// acquire takes the Lease of a silent member. The API server refuses this if the member has renewed
// it since.
//
// If the Lease is missing, acquire only creates it: the member may have renewed it after this
// process saw it last, until it was deleted. The new one lasts as long as the member's, so when it
// expires, the member's trust is over.
func (u *expirer) acquire(ctx context.Context, name string, of entry) (term uint64, ok bool) {
	silent, lasts := of.lease, u.m.registry.least
	if silent == nil {
		silent = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: u.m.requests.namespace, Name: name}}
		lasts = of.rival.Lasts()
	}
	next := lease.Acquired(silent, u.m.identity, lasts, time.Now())
	metav1.SetMetaDataLabel(&next.ObjectMeta, GroupLabel, u.m.requests.group) // it may be lost
	delete(next.Annotations, sessionAnnotation)
	delete(next.Annotations, seenAnnotation)
	got, err := u.m.requests.put(ctx, next)
	switch {
	case overtaken(err):
		_ = read(ctx, &u.m.requests, u.m.registry, name) // an error comes again at the next attempt
		return 0, false
	case err != nil:
		u.m.failing(ctx, "the Lease of a silent replica was not acquired; it will be retried", "lease", name, "err", err)
		return 0, false
	}
	if term, err = u.m.registry.put(got); err != nil {
		return 0, false
	}
	return term, of.lease != nil
}

// abandoned is how long the Lease of no member stays after it has expired.
const abandoned = time.Minute

// sweep deletes one Lease that no member uses: of a dead member, or of a process that has ended
// before it joined.
func (u *expirer) sweep(ctx context.Context, a *slots.Assignment) {
	if _, recovering := a.Recovering(); recovering || !a.Joined(u.m.id) || time.Since(u.swept) < pollInterval {
		return
	}
	others := u.m.others(a)
	for _, of := range u.m.registry.members() {
		name := of.lease.Name
		used := name == u.m.id.Name || slices.ContainsFunc(others, func(id slots.ID) bool { return id.Name == name })
		_, inUse := of.lease.Annotations[sessionAnnotation] // by a process with our identity
		ours := lease.Holder(of.lease) == u.m.identity && !inUse
		if used || !ours && u.m.registry.left(of) > -abandoned {
			continue
		}
		u.swept = time.Now()
		if err := u.m.requests.remove(ctx, of.lease); err != nil {
			u.m.failing(ctx, "the Lease of a former replica was not deleted; it will be retried", "lease", name, "err", err)
			return
		}
		_ = read(ctx, &u.m.requests, u.m.registry, name) // the watch may be silent
		return
	}
}
