// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// history is a ledger with two terms of a Lease of 10 s: version 10 is a's from second 0, version
// 100 is b's from second 20.
func history() (*ledger, func(seconds float64) time.Time) {
	began := time.Unix(1_000_000, 0)
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	l := newLedger(10 * time.Second)
	l.leased(leaseWrite{version: 10, by: "a", holder: "a", renew: at(0), acquires: true, answered: at(0)})
	l.leased(leaseWrite{version: 50, by: "a", holder: "a", renew: at(8), answered: at(8)})
	l.leased(leaseWrite{version: 100, by: "b", holder: "b", renew: at(20), acquires: true, answered: at(20)})
	return l, at
}

func TestJudge(t *testing.T) {
	// a's trust after its last renewal ends at second 8 + 9.
	ask := func(at func(float64) time.Time, sort string, passed, arrived, sent float64, status int, version uint64) *request {
		return &request{
			term: 10, sort: sort, name: "x", passed: at(passed), trust: at(17), done: true,
			arrived: at(arrived), sent: at(sent), answered: at(sent + 0.1), status: status, version: version,
		}
	}
	for name, c := range map[string]struct {
		change                           func(l *ledger, at func(float64) time.Time)
		passed, left, arrivals, executed int
		broken                           string
	}{
		"nothing": {func(*ledger, func(float64) time.Time) {}, 0, 0, 0, 0, ""},
		"in time": {func(l *ledger, at func(float64) time.Time) {
			l.requests[requestID{"a", 1}] = ask(at, protects, 16, 16, 16, 200, 60)
		}, 0, 0, 0, 0, ""},
		"it passed the fence late": {func(l *ledger, at func(float64) time.Time) {
			l.requests[requestID{"a", 1}] = ask(at, reads, 17, 17.1, 17.1, 200, 60)
		}, 1, 0, 0, 0, ""},
		"it was refused": {func(l *ledger, at func(float64) time.Time) {
			l.requests[requestID{"a", 1}] = &request{term: 10, passed: at(18), trust: at(17)}
		}, 0, 0, 0, 0, ""},
		"suspended between the fence and the wire": {func(l *ledger, at func(float64) time.Time) {
			l.pauses = append(l.pauses, pause{"a", at(16.5), at(25)})
			l.requests[requestID{"a", 1}] = ask(at, protects, 16.4, 25.1, 25.1, 409, 0)
		}, 0, 1, 1, 0, ""},
		"held by the network": {func(l *ledger, at func(float64) time.Time) {
			l.requests[requestID{"a", 1}] = ask(at, patches, 16, 16, 25, 200, 120)
		}, 0, 0, 1, 1, ""},
		"held, but executed before": {func(l *ledger, at func(float64) time.Time) {
			l.requests[requestID{"a", 1}] = ask(at, patches, 16, 16, 19, 200, 90)
		}, 0, 0, 0, 0, ""},
		"sent before, and executed after": {func(l *ledger, at func(float64) time.Time) {
			l.requests[requestID{"a", 1}] = ask(at, patches, 16, 16, 19, 200, 101)
		}, 0, 0, 1, 1, ""},
		"with a version, before the next leader has written it": {func(l *ledger, at func(float64) time.Time) {
			l.requests[requestID{"a", 1}] = ask(at, protects, 16, 16, 25, 200, 120)
		}, 0, 0, 1, 1, ""},
		"back to an older term": {func(l *ledger, at func(float64) time.Time) {
			l.requests[requestID{"a", 1}] = ask(at, protects, 16, 16, 25, 200, 120)
			newer := ask(at, protects, 21, 21, 21, 200, 110)
			newer.term, newer.trust = 100, at(29)
			l.requests[requestID{"b", 1}] = newer
		}, 0, 0, 1, 1, "x was written in term 10 after it had been in term 100"},
		"in a term of somebody else": {func(l *ledger, at func(float64) time.Time) {
			l.requests[requestID{"b", 1}] = ask(at, protects, 16, 16, 16, 200, 60)
		}, 0, 0, 0, 0, "L2: b made a request in a term that is not its own"},
		"not reported": {func(l *ledger, at func(float64) time.Time) {
			r := ask(at, protects, 16, 16, 16, 200, 60)
			r.passed = time.Time{}
			l.requests[requestID{"a", 1}] = r
		}, 0, 0, 0, 0, "not reported"},
		"a Lease taken early": {func(l *ledger, at func(float64) time.Time) {
			l.leased(leaseWrite{version: 200, by: "c", holder: "c", renew: at(29.9), acquires: true, answered: at(30)})
		}, 0, 0, 0, 0, "L1: c took the Lease of b only 9.9s"},
		"a Lease released by another": {func(l *ledger, at func(float64) time.Time) {
			l.leased(leaseWrite{version: 200, by: "a", renew: at(22), answered: at(22)})
		}, 0, 0, 0, 0, "L4: a released the Lease of b"},
		"released with work under way": {func(l *ledger, at func(float64) time.Time) {
			l.reported("b", report{What: passed, ID: 1, At: at(21).UnixNano()})
			l.reported("b", report{What: releases, At: at(22).UnixNano()})
		}, 0, 0, 0, 0, "L3: b released the Lease with 1 requests under way"},
	} {
		t.Run(name, func(t *testing.T) {
			l, at := history()
			c.change(l, at)
			v := l.judge()
			executed := 0
			for _, a := range v.arrivals {
				if a.late {
					executed++
				}
				testkit.Equal(t, a.cause == suspended, strings.HasPrefix(name, "suspended"), "the cause is said to be", a.cause)
			}
			if len(v.passed) != c.passed || len(v.left) != c.left || len(v.arrivals) != c.arrivals || executed != c.executed {
				t.Errorf("%+v", v)
			}
			if got := strings.Join(v.broken, "\n"); !strings.Contains(got, c.broken) || c.broken == "" && got != "" {
				t.Errorf("broken: %q, want %q", got, c.broken)
			}
		})
	}
}

// A process's trust ends as its last renewal allows, and with a release.
func TestTrust(t *testing.T) {
	testkit.Equal(t, trusted(15*time.Second), 13500*time.Millisecond, "with the defaults it")
	l := newLedger(15 * time.Second)
	tell := func(what string, at, sent int64) {
		l.reported("a", report{What: what, ID: int(at), At: at * 1e9, Sent: sent * 1e9})
	}
	tell(renewed, 101, 100)
	tell(passed, 102, 0)
	tell(renewed, 105, 104)
	tell(passed, 106, 0)
	tell(releases, 107, 0)
	tell(passed, 108, 0)
	for n, want := range map[int]float64{102: 113.5, 106: 117.5, 108: 107} {
		testkit.Equal(t, float64(l.requests[requestID{"a", n}].trust.UnixMilli())/1000, want, fmt.Sprintf("request %d is trusted until", n))
	}
}
