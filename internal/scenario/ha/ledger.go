// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"fmt"
	"slices"
	"time"
)

// requestID tells a request of a process from all others.
type requestID struct {
	identity string
	n        int
}

// request is one request that a leader made, as the witnesses on its way saw it.
type request struct {
	term uint64 // the version of the Lease that began the term
	sort string
	name string // of the object

	passed time.Time // the fence, at the earliest; by the process
	trust  time.Time // the end of the trust that the process had then
	wrote  time.Time // to the operating system, at the latest; by the process
	done   bool      // as far as the process knows

	arrived  time.Time // at the network
	sent     time.Time // by the network to the API server
	answered time.Time // by the API server
	status   int       // 0: the API server did not answer
	version  uint64    // of what it wrote
}

// left is when it left the process, at the latest.
func (r *request) left() time.Time {
	if !r.wrote.IsZero() && r.wrote.Before(r.arrived) {
		return r.wrote
	}
	return r.arrived
}

func (r *request) committed() bool {
	return r.status >= 200 && r.status < 300 && r.sort != reads
}

// leaseWrite is a write of the Lease that the API server has accepted.
type leaseWrite struct {
	version  uint64
	by       string // the process
	holder   string // whom it makes the holder
	renew    time.Time
	acquires bool
	answered time.Time
}

// pause is a time in which a process stood still.
type pause struct {
	identity string
	from, to time.Time
}

// ledger is what the witnesses of one group have seen. The group's mutex guards it.
type ledger struct {
	lease    time.Duration
	requests map[requestID]*request
	leases   []leaseWrite
	pauses   []pause
	trust    map[string]time.Time // by process: when it is over, as far as its renewals go
	open     map[string]int       // requests of a process that have passed the fence and are not done
	refusals int                  // by the fence
	broken   []string             // promises, as seen at once
}

func newLedger(lease time.Duration) *ledger {
	return &ledger{lease: lease, requests: map[requestID]*request{}, trust: map[string]time.Time{}, open: map[string]int{}}
}

// trusted is for how long a renewal is good, as package leaderelection documents it: until half of what is left of the Lease when
// its term is lost, with the default RenewDeadline and RetryPeriod.
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

// reported takes down what a process says of its requests.
func (l *ledger) reported(identity string, r report) {
	at := time.Unix(0, r.At)
	switch r.What {
	case passed:
		q := l.request(identity, r.ID)
		if q.passed.IsZero() { // net/http may try another connection; the first look is what counts
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
		l.trust[identity] = at // nothing passes from now on
		if n := l.open[identity]; n > 0 {
			l.broken = append(l.broken, fmt.Sprintf("L3: %s released the Lease with %d requests under way", identity, n))
		}
	case refused:
		l.refusals++
	}
}

// leased takes down a write of the Lease that was accepted, and looks at what it must not be.
func (l *ledger) leased(w leaseWrite) {
	l.leases = append(l.leases, w)
	slices.SortStableFunc(l.leases, func(a, b leaseWrite) int { return int(a.version) - int(b.version) }) //nolint:gosec // they are small
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

// lastRenewal returns when the holder before a term has renewed for the last time; zero if it had released the Lease.
func (l *ledger) lastRenewal(term uint64) time.Time {
	for i, w := range l.leases {
		if w.version == term && i > 0 && l.leases[i-1].holder != "" {
			return l.leases[i-1].renew
		}
	}
	return time.Time{}
}
