// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"fmt"
	"slices"
	"time"
)

// requestID identifies a request of a process.
type requestID struct {
	identity string
	n        int
}

// request is one request of a leader, as observed on its way.
type request struct {
	term uint64 // the version of the Lease that began the term
	sort string
	name string // of the object

	passed time.Time // passed the fence, at the earliest; by the process
	trust  time.Time // the end of the process's trust window at that time
	wrote  time.Time // written to the operating system, at the latest; by the process
	done   bool      // according to the process

	arrived  time.Time // at the proxy
	sent     time.Time // by the proxy to the API server
	answered time.Time // by the API server
	status   int       // 0: the API server did not answer
	version  uint64    // of the written object
}

// left returns when the request left the process, at the latest.
func (r *request) left() time.Time {
	if !r.wrote.IsZero() && r.wrote.Before(r.arrived) {
		return r.wrote
	}
	return r.arrived
}

func (r *request) committed() bool {
	return r.status >= 200 && r.status < 300 && r.sort != reads
}

// leaseWrite is an accepted write of the Lease.
type leaseWrite struct {
	version  uint64
	by       string // the writing process
	holder   string // the new holder
	renew    time.Time
	acquires bool
	answered time.Time
}

// pause is a time in which a process was suspended.
type pause struct {
	identity string
	from, to time.Time
}

// ledger holds the observations of one group. The group's mutex guards it.
type ledger struct {
	lease    time.Duration
	requests map[requestID]*request
	leases   []leaseWrite
	pauses   []pause
	trust    map[string]time.Time // by process: its end according to the renewals
	open     map[string]int       // by process: requests that passed the fence and are not done
	refusals int                  // by the fence
	broken   []string             // guarantees, detected immediately
}

func newLedger(lease time.Duration) *ledger {
	return &ledger{lease: lease, requests: map[requestID]*request{}, trust: map[string]time.Time{}, open: map[string]int{}}
}

// trusted returns how long a renewal is valid, as package leaderelection documents it. With the
// default RenewDeadline and RetryPeriod, it ends at half of the Lease's remaining time when the
// term is lost.
func trusted(lease time.Duration) time.Duration {
	deadline := lease * 2 / 3
	retry := deadline / 5
	return lease - (lease-deadline-retry)/2
}

func (l *ledger) request(identity string, n int) *request {
	id := requestID{identity, n}
	r := l.requests[id]
	if r == nil {
		r = &request{}
		l.requests[id] = r
	}
	return r
}

// reported records a process's report about its requests.
func (l *ledger) reported(identity string, r report) {
	at := time.Unix(0, r.At)
	switch r.What {
	case passed:
		q := l.request(identity, r.ID)
		if q.passed.IsZero() { // net/http may retry on another connection; the first pass counts
			l.open[identity]++
		}
		q.passed, q.trust = at, l.trust[identity]
	case wrote:
		l.request(identity, r.ID).wrote = at
	case done:
		if q := l.request(identity, r.ID); !q.passed.IsZero() && !q.done {
			q.done = true
			l.open[identity]--
		}
	case renewed:
		l.trust[identity] = time.Unix(0, r.Sent).Add(trusted(l.lease))
	case releases:
		l.trust[identity] = at // no request passes from now on
		if n := l.open[identity]; n > 0 {
			l.broken = append(l.broken, fmt.Sprintf("L3: %s released the Lease with %d requests under way", identity, n))
		}
	case refused:
		l.refusals++
	}
}

// leased records an accepted write of the Lease.
func (l *ledger) leased(w leaseWrite) {
	l.leases = append(l.leases, w)
	slices.SortStableFunc(l.leases, func(a, b leaseWrite) int {
		return int(a.version) - int(b.version) //nolint:gosec // they are small
	})
}

// terms returns the acquisitions in order.
func (l *ledger) terms() []leaseWrite {
	var all []leaseWrite
	for _, w := range l.leases {
		if w.acquires {
			all = append(all, w)
		}
	}
	return all
}

// lastRenewal returns the last renewal of the holder before a term, or zero if it had released the
// Lease.
func (l *ledger) lastRenewal(term uint64) time.Time {
	for i, w := range l.leases {
		if w.version == term && i > 0 && l.leases[i-1].holder != "" {
			return l.leases[i-1].renew
		}
	}
	return time.Time{}
}
