// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/slots"
)

// proof proves that the lives of a member before it are over: its Lease was acquired
// since.
type proof struct {
	of    slots.ID
	since time.Time // when the Lease was seen to change last
}

// bury acquires the Leases of silent members, by the rule of L1.
func (l *life) bury(ctx context.Context, a *slots.Assignment) {
	for _, id := range l.others(a) {
		of := l.seen.look(id.Name)
		// It has restarted, and not joined; or it has released its Lease, and not left.
		if later := max(shown(of.lease).life, of.released); later > id.Term {
			l.proofs[id] = proof{slots.ID{Name: id.Name, Term: later}, of.at}
			continue
		}
		if _, proved := l.proofs[id]; proved || l.seen.left(of)+l.spread > 0 || time.Since(l.tried[id.Name]) < patience {
			continue
		}
		l.tried[id.Name] = time.Now()
		if term, ok := l.acquire(ctx, id.Name, of); ok {
			l.proofs[id] = proof{slots.ID{Name: id.Name, Term: term}, of.at}
			l.log.Warn("a replica has not renewed its Lease; its slots are given to others", "replica", id.String(), "silentFor", time.Since(of.at).Round(time.Millisecond).String())
		}
	}
}

// acquire takes the Lease of a silent member. The API server refuses this if the member has renewed
// it since.
//
// If the Lease is missing, acquire only creates it: the member may have renewed it after this
// process saw it last, until it was deleted. When the new one expires, the member's trust is over.
func (l *life) acquire(ctx context.Context, name string, of sight) (term uint64, ok bool) {
	silent := of.lease
	if silent == nil {
		silent = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.requests.namespace, Name: name, Labels: map[string]string{GroupLabel: l.name}}}
	}
	next := lease.Acquired(silent, l.Identity(), l.seen.least, time.Now())
	delete(next.Annotations, lifeAnnotation)
	delete(next.Annotations, seenAnnotation)
	got, err := l.requests.put(ctx, next)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		l.reread(ctx, name)
		return 0, false
	case err != nil:
		if ctx.Err() == nil {
			l.failing("the Lease of a silent replica was not acquired; it will be retried", "lease", name, "err", err)
		}
		return 0, false
	}
	term, err = parseVersion(got.ResourceVersion)
	if err != nil {
		return 0, false
	}
	l.seen.note(name, got, term)
	return term, of.lease != nil
}

// reread reads a Lease that has changed, because the watch may be broken without an error.
func (l *life) reread(ctx context.Context, name string) {
	got, err := l.requests.get(ctx, name)
	if err != nil {
		return // the watch will show what has changed
	}
	if version, err := parseVersion(got.ResourceVersion); err == nil {
		l.seen.note(name, got, version)
	}
}

// stored forgets proofs that the stored assignment has used.
func (l *life) stored(n *slots.Assignment) {
	for id := range l.proofs {
		if !n.Joined(id) {
			delete(l.proofs, id)
		}
	}
}

// abandoned is how long the Lease of no member stays after it has expired.
const abandoned = time.Minute

// sweep deletes one Lease that no member uses: of a dead member, or of a process that has ended
// before it joined.
func (l *life) sweep(ctx context.Context, a *slots.Assignment) {
	if _, recovering := a.Recovering(); recovering || !a.Joined(l.id) || time.Since(l.swept) < patience {
		return
	}
	others := l.others(a)
	for _, of := range l.seen.members() {
		used := of.Name == l.id.Name || slices.ContainsFunc(others, func(id slots.ID) bool { return id.Name == of.Name })
		buried := lease.Holder(of) == l.Identity()
		if used || !buried && l.seen.left(l.seen.look(of.Name)) > -abandoned {
			continue
		}
		l.swept = time.Now()
		if err := l.requests.remove(ctx, of); err != nil && ctx.Err() == nil {
			l.failing("the Lease of a former replica was not deleted; it will be retried", "lease", of.Name, "err", err)
		}
		return
	}
}

// list reads which lives may act on an assignment before a new one.
func (l *life) list(ctx context.Context, n *transition) {
	all, version, err := l.requests.list(ctx)
	if err != nil {
		if ctx.Err() == nil {
			l.failing("the Leases of the group cannot be listed; its slots wait", "err", err)
		}
		return
	}
	var living []slots.ID
	for i := range all {
		if life := shown(&all[i]).life; life != 0 {
			living = append(living, slots.ID{Name: all[i].Name, Term: life})
		}
	}
	n.apply(n.n.Listed(version, living...))
}
