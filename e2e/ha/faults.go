// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// trouble is a failure that a leader can suffer.
type trouble struct {
	name string
	what string
	// graceful means that the leader has time to release the Lease.
	graceful bool
	// do causes the failure and returns a function that undoes it.
	do func(g *group, r *replica) (undo func(), err error)
}

// troubles are tried in turn.
var troubles = []trouble{
	{"stop", "SIGTERM", true, func(_ *group, r *replica) (func(), error) {
		return func() {}, r.cmd.Process.Signal(syscall.SIGTERM)
	}},
	{"kill", "SIGKILL", false, func(_ *group, r *replica) (func(), error) {
		return func() {}, r.cmd.Process.Kill()
	}},
	{"suspend", "SIGSTOP, and SIGCONT when another leads", false, suspend},
	{"swallow", "a network that swallows all, and delivers it when another leads", false, func(g *group, r *replica) (func(), error) {
		return g.net.Add(fault.Rule{Match: fault.Match{Config: r.cfg}, Hold: true, Freeze: true, Deliver: true}).Remove, nil
	}},
	{"reset", "a network that resets all connections, until another leads", false, func(g *group, r *replica) (func(), error) {
		m := fault.Match{Config: r.cfg}
		rule := g.net.Add(fault.Rule{Match: m, Cut: true})
		g.net.Cut(m)
		return rule.Remove, nil
	}},
	{"strand", "SIGKILL with requests in the network, which arrive when another leads", false, strand},
}

func suspend(g *group, r *replica) (func(), error) {
	began := time.Now()
	if err := r.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	p := r.process
	if err := stopped(r.cmd.Process.Pid); err != nil {
		return nil, err
	}
	if g.verbose {
		g.table.say("%s is suspended", p.identity)
	}
	return func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // fails if the driver's end has killed it
		g.mu.Lock()
		defer g.mu.Unlock()
		g.ledger.pauses = append(g.ledger.pauses, pause{p.identity, began, time.Now()})
	}, nil
}

// stopped returns when a child that received SIGSTOP has stopped. If the driver were killed before
// that, the kernel would not find a stopped member of an orphaned process group, and not wake it.
func stopped(pid int) error {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("it has ended: %w", err)
		case status.Stopped():
			return nil
		default: // listen's goroutine does not receive this status
			return fmt.Errorf("it has ended with status %d, signal %d", status.ExitStatus(), status.Signal())
		}
	}
}

func strand(g *group, r *replica) (func(), error) {
	held := g.net.Add(fault.Rule{Match: fault.Match{Config: r.cfg, Verbs: []string{"update", "patch"}, Resources: []string{"configmaps"}}, Hold: true, Deliver: true})
	ctx, cancel := context.WithTimeout(context.Background(), g.patience())
	defer cancel()
	if err := held.WaitHeld(ctx, g.objects); err != nil {
		held.Remove()
		return nil, err
	}
	return held.Remove, r.cmd.Process.Kill()
}
