// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"fmt"
	"strings"
)

// Fault is what happens once in a run.
type Fault string

// The faults of a write. The operator's process is a new one after a crash.
const (
	// None is a run without a fault.
	None Fault = ""
	// CrashBefore ends the process before the API server gets the write.
	CrashBefore Fault = "crash before"
	// CrashAfter ends the process after the API server has executed the write, without its answer.
	CrashAfter Fault = "crash after"
	// CrashThenStep is CrashAfter; the next step is done before the new process starts.
	CrashThenStep Fault = "crash, then the next step"
	// CrashThenAll is CrashThenStep with all later steps.
	CrashThenAll Fault = "crash, then all later steps"
	// LoseAnswer breaks the connection after the API server has executed the write.
	LoseAnswer Fault = "lost answer"
	// Fail answers 403 instead of the API server, as for a quota that is exceeded.
	Fail Fault = "failure"
	// Conflict answers 409 instead of the API server.
	Conflict Fault = "conflict"
	// Throttle answers 429 instead of the API server, with Retry-After: 1.
	Throttle Fault = "throttling"
	// LateWatch delays the watches of the written kind by 20 seconds, for 40 seconds from the write
	// on.
	LateWatch Fault = "late watch"
	// LoseAnswerLate is LoseAnswer and LateWatch.
	LoseAnswerLate Fault = "lost answer, late watch"
	// Coalesce holds the watches of the written kind from the write on for 20 seconds. Then they
	// end, their versions have expired, and new lists show only the newest state.
	Coalesce Fault = "coalesced events"
	// LateThenStep delays all watches, or Plan.View alone, by 20 seconds, for 40 seconds from the
	// write on, and the next step is done at once.
	LateThenStep Fault = "late watches, then the next step"
	// CoalesceThenStep is Coalesce for all kinds, or Plan.View, and the next step is done at once.
	CoalesceThenStep Fault = "coalesced events with the next step"
	// HandOver ends the process's context after the write. A second process waits for the Lease
	// from the start, and its watches are 20 seconds late, for 40 seconds from the write on.
	HandOver Fault = "hand-over to late watches"
	// OldList is CrashAfter; the first list of the written kind in the new process has the state
	// before the write, and its watch begins 20 seconds later. A list without a resourceVersion is
	// current, so caches of this module get no such fault.
	OldList Fault = "crash, then an old list"
	// LoseLease refuses requests for Leases for 40 seconds from the write on.
	LoseLease Fault = "lost lease"
	// Restore replaces the state of the API server, 10 seconds after the write, by a backup from
	// before the write.
	Restore Fault = "restored server"
)

// The faults of a whole run.
const (
	// Restart ends the process after each step, and starts a new one.
	Restart Fault = "restart after each step"
	// AlwaysLate delays all watches by 5 seconds.
	AlwaysLate Fault = "watches are always late"
	// AlwaysCut ends each watch after 5 seconds.
	AlwaysCut Fault = "watches always end soon"
	// NoBookmarks removes all bookmarks but the end of a streamed list.
	NoBookmarks Fault = "no bookmarks"
)

var (
	ofWrites = []Fault{
		CrashBefore, CrashAfter, CrashThenStep, CrashThenAll, LoseAnswer, Fail, Conflict, Throttle,
		LateWatch, LoseAnswerLate, Coalesce, LateThenStep, CoalesceThenStep, OldList, HandOver, LoseLease, Restore,
	}
	ofRuns = []Fault{Restart, AlwaysLate, AlwaysCut, NoBookmarks}
)

// skips reports whether steps are done before the operator is idle.
func (f Fault) skips() bool {
	switch f {
	case CrashThenStep, CrashThenAll, LateThenStep, CoalesceThenStep:
		return true
	}
	return false
}

// real reports whether the fault is tried on real control planes: not what sweep answers itself.
func (f Fault) real() bool {
	switch f {
	case Fail, Conflict, Throttle, Restore:
		return false
	}
	return true
}

// Plan is one fault, at one place.
type Plan struct {
	Fault Fault
	// Write is the write at which it happens, as a failed test prints it: verb, resource and
	// namespace, and the name unless it is a create. Empty for the faults of a whole run.
	Write string
	// Nth counts the equal writes of the run, from 1.
	Nth int
	// View is the only informer that is late, as a failed test prints it: resource, namespace,
	// selectors, and whether it has metadata only. For LateThenStep and CoalesceThenStep. Default:
	// all are.
	View string
}

// String returns the fault and its place.
func (p Plan) String() string {
	switch {
	case p.Fault == None:
		return "no fault"
	case p.Write == "":
		return string(p.Fault)
	}
	text := fmt.Sprintf("%s: %s #%d", p.Fault, p.Write, p.Nth)
	if p.View != "" {
		text += ", view " + p.View
	}
	return text
}

func (p Plan) testName() string { return strings.ReplaceAll(p.String(), " ", "_") }

// goString is the plan in a test.
func (p Plan) goString() string {
	if p.Write == "" {
		return fmt.Sprintf("sweep.Plan{Fault: %q}", string(p.Fault))
	}
	view := ""
	if p.View != "" {
		view = fmt.Sprintf(", View: %q", p.View)
	}
	return fmt.Sprintf("sweep.Plan{Fault: %q, Write: %q, Nth: %d%s}", string(p.Fault), p.Write, p.Nth, view)
}

// plans returns the plans for what a run without faults has done.
func plans(did *record) (all []Plan) {
	for _, f := range ofRuns {
		all = append(all, Plan{Fault: f})
	}
	for _, w := range did.writes {
		if !w.effective {
			continue
		}
		for _, f := range ofWrites {
			if did.allows(f, w) {
				all = append(all, Plan{Fault: f, Write: w.name, Nth: w.nth})
			}
		}
		views := did.dependents(w)
		for _, f := range []Fault{LateThenStep, CoalesceThenStep} {
			if !did.allows(f, w) || len(did.views) < 2 {
				continue
			}
			for _, view := range views {
				all = append(all, Plan{f, w.name, w.nth, view})
			}
		}
	}
	return all
}

// allows reports whether a fault of a write differs from others.
func (r *record) allows(f Fault, w *write) bool {
	left := r.step - w.step // steps that come after the write
	switch f {
	case Conflict:
		return w.verb == "update" || w.verb == "patch"
	case LateWatch, LoseAnswerLate, Coalesce:
		return r.watched(w.resource)
	case OldList:
		return r.outdated[w.resource]
	case LoseLease, HandOver:
		return r.leases
	case CrashThenStep, LateThenStep, CoalesceThenStep:
		return left > 0
	case CrashThenAll:
		return left > 1
	}
	return true
}
