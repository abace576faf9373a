// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// always adds the faults of a whole run.
func (r *run) always(l *connection) {
	watches := fault.Match{Verbs: []string{"watch"}}
	switch r.plan.Fault {
	case AlwaysLate:
		l.rules.Add(fault.Rule{Match: watches, Lag: 5 * time.Second})
		r.fire()
	case AlwaysCut:
		l.rules.Add(fault.Rule{Match: watches, CutAfter: 5 * time.Second})
		r.fire()
	}
}

func (r *run) faultFor(w *write) Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plan.Write != w.name || r.plan.Nth != w.nth || r.record.fired {
		return None
	}
	r.record.fired = true
	if r.plan.Fault == OldList {
		r.old, r.oldKind = r.server.Version(), w.resource
	}
	return r.plan.Fault
}

func (r *run) fire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.fired = true
}

// beginLasting begins a fault that lasts.
func (r *run) beginLasting(l *connection, f Fault, w *write) {
	of := fault.Match{Verbs: []string{"watch"}, Groups: []string{w.resource.Group}, Resources: []string{w.resource.Resource}}
	backup := r.server.Backup()
	r.mu.Lock()
	r.pending++
	if f == LoseLease {
		r.refusing = time.Now().Add(faultLasts)
	}
	r.mu.Unlock()
	var rule *fault.Fault
	lasts := faultLasts
	switch f {
	case LateWatch, LoseAnswerLate:
		rule = l.rules.Add(fault.Rule{Match: of, Lag: viewLag})
	case Coalesce:
		rule = l.rules.Add(fault.Rule{Match: of, Freeze: true})
		lasts = viewLag
	case Restore:
		lasts = 10 * time.Second
	}
	r.joined.Go(func() {
		r.pause(lasts)
		switch f {
		case Coalesce:
			r.server.Expire()
			l.rules.Cut(of)
		case Restore:
			r.history.restored()
			r.server.Restore(backup)
			r.pause(faultLasts) // caches compare every 10 seconds, or once a minute
		}
		if rule != nil {
			rule.Remove()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pending--
	})
}

func (r *run) leaseRefused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.refusing)
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
	r.pending++
	r.mu.Unlock()
	rule := l.rules.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}, Groups: []string{of.Group}, Resources: []string{of.Resource}}, Delay: viewLag})
	r.joined.Go(func() {
		r.pause(viewLag)
		rule.Remove()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pending--
	})
}
