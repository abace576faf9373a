// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// ProgramLabel is the label of members' Leases with the name of the program. A group takes it from
// leaderelection.Options.Labels. A manager sets it to its name. Without it, a group does not wait
// for members of another one.
const ProgramLabel = "setpoint.dev/program"

// reminder is the pause between two log lines about members of another group.
const reminder = time.Minute

// awaitRenamed waits while the program has living members of another group in this namespace: in a
// rolling update that renames the group's Lease, they reconcile all keys. It gives up if the Leases
// cannot be listed for a LeaseDuration, or at once without the right to list them.
func (g *Group) awaitRenamed(ctx context.Context) {
	if g.program == "" {
		return
	}
	log := logging.Of(ctx).With("group", g.String(), "program", g.program)
	rivals, began := map[string]*lease.Rival{}, time.Now()
	listed, waits, free := began, false, 0
	var said time.Time
	for ctx.Err() == nil {
		other, expired, err := g.foreign(ctx, rivals, began)
		switch {
		case apierrors.IsForbidden(err) || err != nil && time.Since(listed) > g.process.registry.least:
			// The watch reports the error.
			g.process.status.Store(&Status{Group: g.String()})
			return
		case err != nil:
		case other == nil:
			// Look again: another member may be about to join that group.
			if listed, free = time.Now(), free+1; waits && free == 1 {
				break
			}
			if waits {
				log.Info("the members of the other group have left")
				g.process.status.Store(&Status{Group: g.String()})
			}
			g.sweepRenamed(ctx, expired)
			return
		default:
			listed, waits, free = time.Now(), true, 0
			of := other.Labels[GroupLabel]
			g.process.status.Store(&Status{Group: g.String(), Standby: true, Trouble: fmt.Sprintf(
				"members of the group %s of the same program (%s) work: was the group's Lease renamed? "+
					"Stop the replicas with the old name; give two programs two names", of, g.program)})
			if said.IsZero() || time.Since(said) >= reminder {
				said = time.Now()
				log.Warn("waiting until the members of another group of this program have left: was its Lease renamed? "+
					"Stop the replicas with the old name; give two programs two names in manager.Options.Name",
					"other", of, "member", other.Name, "holder", lease.Holder(other))
			}
		}
		_ = run.Sleep(ctx, pollInterval)
	}
}

// foreign returns the Lease of a living member of another group of the program, or nil, and the
// Leases of members that have crashed.
func (g *Group) foreign(ctx context.Context, rivals map[string]*lease.Rival, began time.Time) (living *coordinationv1.Lease, expired []*coordinationv1.Lease, err error) {
	all, err := run.Call(ctx, g.process.requests.calls, requestLimit, func(ctx context.Context) (*coordinationv1.LeaseList, error) {
		return g.process.requests.client.List(ctx, metav1.ListOptions{LabelSelector: labels.Set{ProgramLabel: g.program}.String()})
	})
	if err != nil {
		return nil, nil, err
	}
	now := time.Since(began)
	for i := range all.Items { // all of them, so that their times pass together
		l := &all.Items[i]
		if of := l.Labels[GroupLabel]; of == "" || of == g.process.requests.group {
			continue
		}
		r := rivals[l.Name]
		if r == nil {
			r = &lease.Rival{Least: g.process.registry.least}
			rivals[l.Name] = r
		}
		switch r.See(l, false, now); {
		case r.Left(now) <= 0 && !lease.Released(l):
			expired = append(expired, l)
		case r.Left(now) > 0 && living == nil:
			living = l
		}
	}
	return living, expired, nil
}

// sweepRenamed deletes the Leases of crashed members of the other group. No member is left to do
// it, and each start would wait for them.
func (g *Group) sweepRenamed(ctx context.Context, expired []*coordinationv1.Lease) {
	for _, l := range expired {
		if err := g.process.requests.remove(ctx, l); err != nil {
			logging.Of(ctx).Warn("the Lease of a crashed member of another group was not deleted", "lease", l.Name, "err", err)
			return
		}
	}
}
