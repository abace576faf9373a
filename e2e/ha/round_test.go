// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// A leader that loses its term by itself, because its machine was busy, is not chosen for a
// trouble: it may have ended by then.
func TestVictim_LeadsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &group{options: options{lease: time.Second}, table: newTable(io.Discard, options{}), news: make(chan struct{}), ledger: newLedger(time.Second)}
		var processes []*process
		for _, name := range []string{"a", "b", "c"} {
			p := &process{identity: name + ".1", warm: true}
			processes = append(processes, p)
			g.replicas = append(g.replicas, &replica{name: name, process: p})
		}
		lead := func(leader *process) {
			g.mu.Lock()
			g.ledger.leases = append(g.ledger.leases, leaseWrite{holder: leader.identity})
			g.mu.Unlock()
			for _, p := range processes {
				g.reported(p, report{What: follows, Who: leader.identity})
			}
			g.reported(leader, report{What: leads})
		}
		lead(processes[0])
		time.AfterFunc(100*time.Millisecond, func() { g.reported(processes[0], report{What: lost}) })
		time.AfterFunc(time.Second, func() { lead(processes[1]) })
		r, err := g.victim(t.Context())
		if err != nil || r != g.replicas[1] {
			t.Errorf("got %+v, %v, want the replica that leads now", r, err)
		}
	})
}

// A failure shows how a replica ended, and its last log lines.
func TestState_ShowsHowAReplicaEnded(t *testing.T) {
	p := &process{identity: "a.1", ended: true}
	for range 10_000 {
		testkit.NoError(t, testkit.Err(p.errs.Write([]byte("early\n"))))
	}
	testkit.NoError(t, testkit.Err(p.errs.Write([]byte("the Lease was lost\n"))))
	p.cmd = exec.Command(os.Args[0]) // a replica without orders
	p.cmd.Env = append(os.Environ(), asReplica+"=1")
	if err := p.cmd.Run(); err == nil {
		t.Fatal("a replica without orders goes on")
	}
	g := &group{ledger: newLedger(time.Second), replicas: []*replica{{name: "a", process: p}}}
	got := g.state()
	for _, want := range []string{"a.1", "exit status 1", "the Lease was lost"} {
		testkit.Contains(t, got, want)
	}
	if len(got) > 2*tailSize {
		t.Errorf("it has %d bytes", len(got))
	}
}
