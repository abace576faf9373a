// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// allWatches leaves out Leases: leaders see them as they are.
var allWatches = fault.Match{Verbs: []string{"watch"}, Func: func(q *fault.Request) bool { return q.Resource != leases.Resource }}

// always adds the faults of a whole run.
func (r *run) always(l *connection) {
	switch r.plan.Fault {
	case AlwaysLate:
		l.rules.Add(fault.Rule{Match: allWatches, Lag: r.pace.lag / 4})
		r.fire()
	case AlwaysCut:
		l.rules.Add(fault.Rule{Match: allWatches, CutAfter: r.pace.lag / 4})
		r.fire()
	}
}

func (r *run) isPlanLocked(w *write) bool { return r.plan.Write == w.name && r.plan.Nth == w.nth }

func (r *run) faultFor(w *write) Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isPlanLocked(w) || r.record.fired {
		return None
	}
	r.record.fired = true
	return r.plan.Fault
}

func (r *run) fire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.fired = true
}

// cancelFault makes the fault one that has not happened.
func (r *run) cancelFault() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.fired = false
	r.plan.Write = ""
}

// stepWrites counts the writes of steps.
func (r *run) stepWrites() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.userWrites
}

// beginLasting begins a fault that lasts, if f is one.
func (r *run) beginLasting(l *connection, f Fault, w *write) {
	of := fault.Match{Verbs: allWatches.Verbs, Groups: []string{w.resource.Group}, Resources: []string{w.resource.Resource}}
	lag := fault.Rule{Match: of, Lag: r.pace.lag}
	switch f {
	case LateThenStep:
		lag.Match = r.plan.views()
		r.lasting(r.pace.lasts, l.rules.Add(lag).Remove)
	case LateWatch, LoseAnswerLate:
		r.lasting(r.pace.lasts, l.rules.Add(lag).Remove)
	case HandOver:
		lag.Match = allWatches
		for _, other := range r.others(l) {
			r.lasting(r.pace.lasts, other.rules.Add(lag).Remove)
		}
	case CoalesceThenStep:
		of = r.plan.views()
		fallthrough
	case Coalesce:
		frozen := l.rules.Add(fault.Rule{Match: of, Freeze: true})
		r.lasting(r.pace.lag, func() {
			r.expire(l, of)
			l.rules.Cut(of)
			frozen.Remove()
		})
	case LoseLease:
		r.mu.Lock()
		r.refusing = time.Now().Add(r.pace.lasts)
		r.mu.Unlock()
		r.lasting(r.pace.lasts, func() {})
	case Restore:
		restore, steps := r.plane.backup(), r.stepWrites()
		r.lasting(r.pace.restore, func() {
			if r.stepWrites() != steps { // a user would do them again
				r.cancelFault()
				return
			}
			r.history.restored()
			restore()
			r.lasting(3*r.pace.lag, func() {}) // caches compare within 10 seconds
		})
	}
}

// lasting calls done after d, or at the end. converge waits for it.
func (r *run) lasting(d time.Duration, done func()) {
	r.mu.Lock()
	r.pending++
	r.mu.Unlock()
	r.joined.Go(func() {
		r.pause(d)
		done()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pending--
	})
}

// expire answers watches of versions before now with 410 for a while.
func (r *run) expire(l *connection, of fault.Match) {
	version, err := r.plane.version(context.Background())
	if err != nil {
		r.fail("the newest version: %v", err)
		return
	}
	now, _ := strconv.ParseUint(version, 10, 64)
	also := of.Func
	of.Func = func(q *fault.Request) bool {
		if also != nil && !also(q) {
			return false
		}
		from, err := strconv.ParseUint(q.Query.Get("resourceVersion"), 10, 64)
		return err == nil && from > 0 && from < now && q.Query.Get("sendInitialEvents") == ""
	}
	r.lasting(r.pace.lasts, l.rules.Add(fault.Rule{Match: of, Refuse: apierrors.NewResourceExpired("sweep: the version is too old")}).Remove)
}

// others returns the connections of the other processes of the operator.
func (r *run) others(l *connection) (all []*connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.alive {
		if i.connection != l {
			all = append(all, i.connection)
		}
	}
	return all
}

func (r *run) leaseRefused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.refusing)
}

// outdate lets the next process see the written kind as it is now.
func (r *run) outdate(ctx context.Context, w *write) error {
	version, err := r.plane.version(ctx)
	if err != nil {
		return fmt.Errorf("sweep: the newest version: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.old, r.oldKind = version, w.resource
	return nil
}

// oldList returns the version that a list of the kind shows in a new process.
func (r *run) oldList(l *connection, of schema.GroupVersionResource) (version string, stale bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.old, r.old != "" && of == r.oldKind && !l.crashed()
}

// servedOld lets the watch that follows an old list begin late.
func (r *run) servedOld(l *connection, of schema.GroupVersionResource) {
	r.mu.Lock()
	r.old = ""
	r.mu.Unlock()
	m := fault.Match{Verbs: allWatches.Verbs, Groups: []string{of.Group}, Resources: []string{of.Resource}}
	r.lasting(r.pace.lag, l.rules.Add(fault.Rule{Match: m, Delay: r.pace.lag}).Remove)
}
