// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// costs counts the requests of an idle leader and an idle standby.
func (f *failover) costs(ctx context.Context, w *report, a *arena) error {
	const whileIdle = time.Minute
	names := append([]string{"client-go"}, operators...)
	rows, errs := make([]string, len(names)), make([]error, len(names))
	var counting sync.WaitGroup
	for i, name := range names {
		counting.Go(func() { rows[i], errs[i] = f.cost(ctx, a, name, whileIdle) })
	}
	counting.Wait()
	fmt.Fprintf(w, "requests in %s\tleader, for the Lease\tall\tstandby, for the Lease\tall\twatches of the Lease open\t\n", whileIdle)
	for i, row := range rows {
		if errs[i] != nil {
			return errs[i]
		}
		fmt.Fprintf(w, "%s\t%s\t\n", names[i], row)
	}
	return nil
}

func (f *failover) cost(ctx context.Context, a *arena, name string, idle time.Duration) (row string, err error) {
	namespace, err := a.new(ctx)
	if err != nil {
		return "", err
	}
	var cfgs []*rest.Config
	for range 2 {
		cfg, err := a.proxy.Config()
		if err != nil {
			return "", err
		}
		cfgs = append(cfgs, cfg)
	}
	replicas := newFleet(name, namespace, cfgs...)
	replicas.verbose = f.verbose
	defer replicas.stop()
	leader, err := replicas.settle(ctx)
	if err != nil {
		return "", err
	}
	if leader != replicas.replicas[0] {
		cfgs[0], cfgs[1] = cfgs[1], cfgs[0]
	}
	time.Sleep(5 * time.Second) // excludes one-time requests
	const group = "coordination.k8s.io"
	var rules []*fault.Fault
	for _, cfg := range cfgs {
		rules = append(rules,
			a.proxy.Add(fault.Rule{Match: fault.Match{Config: cfg, Groups: []string{group}}}),
			a.proxy.Add(fault.Rule{Match: fault.Match{Config: cfg}}))
	}
	time.Sleep(idle)
	for _, r := range rules {
		row += fmt.Sprintf("%d\t", r.Hits())
		r.Remove()
	}
	open := 0
	for _, r := range a.proxy.Requests(fault.Match{Config: cfgs[1], Groups: []string{group}, Verbs: []string{"watch"}}) {
		if r.Ended.IsZero() {
			open++
		}
	}
	return row + fmt.Sprint(open), nil
}

// calamity keeps an operator's caches from syncing.
type calamity struct {
	name    string
	widgets bool
	begin   func(a *arena, cfg *rest.Config) (end func() error)
}

func ruleOf(rule func(m fault.Match) fault.Rule) func(a *arena, cfg *rest.Config) (end func() error) {
	return func(a *arena, cfg *rest.Config) func() error {
		added := a.proxy.Add(rule(fault.Match{Config: cfg, Resources: []string{"configmaps"}}))
		return func() error { added.Remove(); return nil }
	}
}

var calamities = []calamity{
	{"connections are refused", false, func(a *arena, _ *rest.Config) func() error {
		a.proxy.Down()
		return a.proxy.Up
	}},
	{"the kind is forbidden", false, ruleOf(func(m fault.Match) fault.Rule {
		return fault.Rule{Match: m, Refuse: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", fmt.Errorf("forbidden by the benchmark"))}
	})},
	{"the kind is not served", true, func(*arena, *rest.Config) func() error { return func() error { return nil } }},
	{"the watch hangs", false, ruleOf(func(m fault.Match) fault.Rule {
		m.Verbs = []string{"watch"}
		return fault.Rule{Match: m, Hang: true}
	})},
	{"list and watch hang", false, ruleOf(func(m fault.Match) fault.Rule { return fault.Rule{Match: m, Hang: true} })},
}

// unsynced stops operators whose caches have not synced.
func (f *failover) unsynced(ctx context.Context, w *report, a *arena) error {
	fmt.Fprintln(w, "SIGTERM with unsynced caches, to the process's end\tat most\tsetpoint\tprocessor\t\tcontroller-runtime\tprocessor")
	for _, c := range calamities {
		row := ""
		for i, name := range operators {
			took, processor, err := f.stopUnsynced(ctx, a, name, c)
			if err != nil {
				return err
			}
			row += fmt.Sprintf("%s\t%.2f s\t", took, processor.Seconds())
			if i == 0 {
				row += verdict(took.how == "" && took.time <= time.Second) + "\t"
			}
		}
		fmt.Fprintf(w, "%s\t1 s\t%s\n", c.name, row)
		fmt.Fprintf(os.Stderr, "%s: done\n", c.name)
	}
	return nil
}

// ending is how long a process took to end.
type ending struct {
	time   time.Duration
	killed bool   // after a timeout
	how    string // set if it had ended before the signal
}

// String formats the ending for the table.
func (e ending) String() string {
	switch {
	case e.how != "":
		return e.how
	case e.killed:
		return fmt.Sprintf("over %.0f s", e.time.Seconds())
	}
	return fmt.Sprintf("%.3f s", e.time.Seconds())
}

func (f *failover) stopUnsynced(ctx context.Context, a *arena, name string, c calamity) (took ending, processor time.Duration, err error) {
	namespace, err := a.new(ctx)
	if err != nil {
		return took, 0, err
	}
	cfg, err := a.proxy.Config()
	if err != nil {
		return took, 0, err
	}
	end := c.begin(a, cfg)
	replicas := newFleet(name, namespace, cfg)
	replicas.widgets, replicas.verbose = c.widgets, f.verbose
	err = replicas.start(0)
	if err != nil {
		return took, 0, err
	}
	p := replicas.replicas[0]
	time.Sleep(5 * time.Second) // time for retries
	before := cpuOf(p.cmd.Process.Pid)
	asked := time.Now()
	const patience = 30 * time.Second // controller-runtime's default for a graceful stop
	if p.hasEnded(replicas) {
		took.how = "had ended, " + p.cmd.ProcessState.String()
	} else if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return took, 0, err
	}
	select {
	case <-p.joined:
		took.time = p.at.Sub(asked)
	case <-time.After(patience):
		took.time, took.killed = patience, true
	}
	replicas.stop() // waits for it, too
	processor = p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime() - before
	return took, processor, end()
}
