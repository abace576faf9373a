// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"encoding/json"
	"os"
	"sync"
	"time"
)

// orders is what a replica is told on its standard input. When that closes, the driver is gone, and so goes the replica.
type orders struct {
	Host, Token string
	CA          []byte
	HTTP1       bool
	Namespace   string
	Identity    string
	Lease       time.Duration
	Objects     int           // that are written all the time, of each sort
	Pace        time.Duration // between two writes of one
	Linger      time.Duration // between the fence and the wire, of some requests
	Unfenced    bool          // writes carry no term
}

// what a replica reports.
const (
	isWarm     = "warm"      // it could lead
	leads      = "leads"     // all objects are written in the new term
	follows    = "follows"   // Who leads
	lost       = "lost"      // its term, and not because it was asked to stop
	reconciled = "reconcile" // of Key, begun At
	passed     = "passed"    // a request got a connection: the fence looks at it next
	wrote      = "wrote"     // it was handed to the operating system
	done       = "done"      // it was answered, or failed
	renewed    = "renewed"   // a write of the Lease, whose renew time is Sent, was answered well
	releases   = "releases"  // a write of the Lease that gives it up is about to be sent
	refused    = "refused"   // the fence refused a write
)

// report is one line on a replica's standard output. Times are of the wall clock, which all processes of a machine share.
type report struct {
	What string `json:"w"`
	At   int64  `json:"t"`
	Sent int64  `json:"s,omitempty"`
	ID   int    `json:"i,omitempty"`
	Key  string `json:"k,omitempty"`
	Who  string `json:"h,omitempty"`
	Term string `json:"e,omitempty"`
}

// reporter writes reports, each at once: what is not written yet when the process is killed is not known.
type reporter struct {
	mu  sync.Mutex // one line at a time
	out *os.File
}

func (r *reporter) tell(what report) {
	if what.At == 0 {
		what.At = time.Now().UnixNano()
	}
	line, err := json.Marshal(what)
	if err != nil {
		panic(err) // it has plain fields only
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.out.Write(append(line, '\n')) // nobody listens: the driver is gone, and this process will be
}
