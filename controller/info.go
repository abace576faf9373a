// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// Info describes a Reconcile.
type Info struct {
	Controller string // its name
	// Key is of the controller's key type.
	Key any
	// ReconcileID is unique across processes, as in the log.
	ReconcileID string
	// Attempt is 1 after a success, 2 after one failure, and so on.
	Attempt int
	// Class is the key's class when a worker took it.
	Class workqueue.Class
	// Tenant is empty if the queue has no tenants.
	Tenant string
	// Queued is when the key became ready. It is zero if workqueue.Options.Reasons is negative and
	// no hook gets events of the queue.
	Queued time.Time
	// Reasons are why the key is reconciled: the first reason, then the newest ones. ReasonsDropped
	// counts those in between. After the Reconcile has returned, Reasons is empty.
	Reasons        []workqueue.Reason
	ReasonsDropped int
	// Fight describes the fight of the key with another writer, if it goes on: see "Fights" in the
	// package doc.
	Fight string

	of tracer
}

// tracer is a controller of any key type.
type tracer interface {
	traceParents(key any, reasons []workqueue.Reason) []string
}

// TraceParents returns the W3C trace contexts of the objects that a Reconcile is about, to link its
// span to: at most 4 different values of the annotation tracing.k8s.io/traceparent (KEP-5915). The
// object that the key names comes first, for sources with a handler.Identity, then the objects of
// Reasons. Each call reads the newest state from the caches of the sources, without decoding whole
// objects. It leaves out deleted objects and values of another format.
func (i Info) TraceParents() []string {
	if i.of == nil {
		return nil
	}
	return i.of.traceParents(i.Key, i.Reasons)
}

// InfoFromContext describes the Reconcile whose context ctx is or derives from. ok is false for
// other contexts, for example in unit tests. It copies the reasons under the queue's lock: call it
// once in a Reconcile, or in an observer.
func InfoFromContext(ctx context.Context) (info Info, ok bool) {
	of, ok := ctx.Value(infoKey{}).(interface{ info() Info })
	if !ok {
		return Info{}, false
	}
	return of.info(), true
}

type infoKey struct{}

func (r *running[K]) info() Info {
	c := r.of.controller
	reasons, dropped := r.item.Reasons()
	fight := ""
	if f := r.fight; f.fights(r.since) && f.rounds > fightRounds { // f.by is known
		fight = fought(f).Cause
	}
	return Info{
		Fight: fight, Controller: c.name, Key: r.item.Key(), ReconcileID: r.id(), Attempt: r.item.Attempt(),
		Class: r.item.Class(), Tenant: r.item.Tenant(), Queued: r.item.Queued(), Reasons: reasons, ReasonsDropped: dropped,
		of: c,
	}
}
