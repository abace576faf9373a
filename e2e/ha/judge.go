// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// verdict is the result of judging a ledger.
type verdict struct {
	requests int // that carry a term
	refusals int // by the fence
	terms    []termCount
	passed   []string  // requests that passed the fence too late
	left     []string  // requests that passed in time, but left after the trust window
	arrivals []arrival // writes that arrived after the next acquisition
	broken   []string  // guarantees
}

// termCount counts a replica's writes in one term.
type termCount struct {
	leaseWrite

	until    time.Time
	writes   map[string]int // by sort
	conflict int            // version conflicts
}

// arrival is a write that arrived after the next leader's acquisition.
type arrival struct {
	*request

	by    string
	after time.Duration // since the acquisition
	cause string
	late  bool // the write was executed
}

// judge evaluates the ledger of a group. It orders events by version: the API server numbers writes
// of the Lease and of objects in one sequence, so their order is certain.
func (l *ledger) judge() *verdict {
	v := &verdict{requests: len(l.requests), refusals: l.refusals, broken: slices.Clone(l.broken)}
	terms := l.terms()
	index := map[uint64]int{}
	for i, t := range terms {
		c := termCount{leaseWrite: t, writes: map[string]int{}}
		if i+1 < len(terms) {
			c.until = terms[i+1].answered
		}
		v.terms, index[t.version] = append(v.terms, c), i
	}
	v.breakf(l.leaseHistory())
	for _, id := range slices.SortedFunc(maps.Keys(l.requests), func(a, b requestID) int {
		return cmp.Or(strings.Compare(a.identity, b.identity), a.n-b.n)
	}) {
		r := l.requests[id]
		if r.arrived.IsZero() {
			continue // refused or never sent
		}
		i, known := index[r.term]
		switch {
		case r.passed.IsZero():
			v.broken = append(v.broken, fmt.Sprintf("a request of %s arrived that the process has not reported", id.identity))
			continue
		case !known || terms[i].holder != id.identity:
			v.broken = append(v.broken, fmt.Sprintf("L2: %s made a request in a term that is not its own", id.identity))
			continue
		}
		v.fence(id, r, l)
		v.count(&v.terms[i], r)
		if i+1 < len(terms) {
			v.arrival(id, r, &terms[i+1], l)
		}
	}
	v.breakf(l.objectHistories())
	return v
}

func (v *verdict) breakf(broken []string) { v.broken = append(v.broken, broken...) }

// fence checks that a request passed the fence in time.
func (v *verdict) fence(id requestID, r *request, l *ledger) {
	switch late := r.passed.Sub(r.trust); {
	case late >= 0:
		v.passed = append(v.passed, fmt.Sprintf("%s: one %s request, %s after the trust was over", id.identity, r.sort, late))
	case r.left().After(r.trust):
		v.left = append(v.left, fmt.Sprintf("%s: one %s request, %s after, %s", id.identity, r.sort, r.left().Sub(r.trust), l.cause(id, r)))
	}
}

func (v *verdict) count(t *termCount, r *request) {
	switch {
	case r.committed():
		t.writes[r.sort]++
	case r.status == 409:
		t.conflict++
	}
}

// arrival checks whether a write arrived after the next acquisition.
func (v *verdict) arrival(id requestID, r *request, next *leaseWrite, l *ledger) {
	late := r.committed() && r.version > next.version
	if r.sort == reads || r.sent.IsZero() || !late && !r.sent.After(next.answered) {
		return
	}
	v.arrivals = append(v.arrivals, arrival{request: r, by: id.identity, after: r.sent.Sub(next.answered), cause: l.cause(id, r), late: late})
}

// Causes of lateness.
const (
	suspended = "the process was suspended between the fence and the wire"
	slow      = "the process was slow between the fence and the wire"
	held      = "the network held it"
	busy      = "the API server took long"
)

// cause returns where a request spent most of its time.
func (l *ledger) cause(id requestID, r *request) string {
	process, network, server := r.left().Sub(r.passed), r.sent.Sub(r.left()), r.answered.Sub(r.sent)
	switch most := max(process, network, server); {
	case process == most && slices.ContainsFunc(l.pauses, func(p pause) bool {
		return p.identity == id.identity && p.from.Before(r.left()) && r.passed.Before(p.to)
	}):
		return suspended
	case process == most:
		return slow
	case network == most:
		return held
	default:
		return busy
	}
}

// leaseHistory returns the forbidden changes of the Lease.
func (l *ledger) leaseHistory() (broken []string) {
	for i, w := range l.leases {
		if i == 0 {
			continue
		}
		before := l.leases[i-1]
		switch {
		case before.holder == "" || before.holder == w.holder:
		case w.holder == "" && w.by != before.holder:
			broken = append(broken, fmt.Sprintf("L4: %s released the Lease of %s", w.by, before.holder))
		case w.holder != "" && w.renew.Sub(before.renew) < l.lease:
			broken = append(broken, fmt.Sprintf("L1: %s took the Lease of %s only %s after its last renewal", w.holder, before.holder, w.renew.Sub(before.renew)))
		}
	}
	return broken
}

// objectHistories returns the versioned objects that were written in an older term after a newer
// one. A late write before the new leader's first write is harmless: that write finds it.
func (l *ledger) objectHistories() (broken []string) {
	objects := map[string][]*request{}
	for _, r := range l.requests {
		if r.sort == protects && r.committed() {
			objects[r.name] = append(objects[r.name], r)
		}
	}
	for name, writes := range objects {
		slices.SortFunc(writes, func(a, b *request) int { return cmp.Compare(a.version, b.version) })
		if writes[0].version == 0 {
			broken = append(broken, "the version that a write of "+name+" has made is not known")
		}
		for i := 1; i < len(writes); i++ {
			if writes[i].term < writes[i-1].term {
				broken = append(broken, fmt.Sprintf("%s was written in term %d after it had been in term %d", name, writes[i].term, writes[i-1].term))
			}
		}
	}
	return broken
}
