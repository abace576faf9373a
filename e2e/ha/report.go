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

// orders is the configuration of a replica, on its standard input. When that closes, the driver is
// gone and the replica exits.
type orders struct {
	Host, Token string
	CA          []byte
	HTTP1       bool
	Namespace   string
	Identity    string
	Lease       time.Duration
	Objects     int           // written continuously, of each sort
	Pace        time.Duration // between two writes of an object
	Linger      time.Duration // between the fence and the wire, for some requests
	Unfenced    bool          // writes carry no term
}

// Kinds of reports.
const (
	isWarm     = "warm"      // ready to lead
	leads      = "leads"     // has written all objects in the new term
	follows    = "follows"   // Who leads
	lost       = "lost"      // lost its term without being stopped
	reconciled = "reconcile" // began to reconcile Key
	passed     = "passed"    // a request got a connection; the fence checks it next
	wrote      = "wrote"     // a request was written to the operating system
	done       = "done"      // a request was answered or failed
	renewed    = "renewed"   // a write of the Lease with renew time Sent succeeded
	releases   = "releases"  // is about to release the Lease
	refused    = "refused"   // the fence refused a write
)

// report is one line on a replica's standard output. Times are wall clock times, which all
// processes of a machine share.
type report struct {
	What string `json:"w"`
	At   int64  `json:"t"`
	Sent int64  `json:"s,omitempty"`
	ID   int    `json:"i,omitempty"`
	Key  string `json:"k,omitempty"`
	Who  string `json:"h,omitempty"`
	Term string `json:"e,omitempty"`
}

// reporter writes each report immediately: a kill loses only unwritten reports.
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
		panic(err) // impossible: it has plain fields only
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.out.Write(append(line, '\n')) // fails only if the driver is gone
}
