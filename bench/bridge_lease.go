// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// bridgeReplica begins the names of contestants whose replicas write all the time.
const bridgeReplica = "bridge: "

const (
	leaseWriters = 5
	leaseWrites  = 100 * time.Millisecond // between two writes of a Reconcile
	leaseWatch   = 12 * time.Second       // longer than the renew deadline of all contestants
)

// loss is a way to lose the Lease while Reconciles go on.
type loss struct {
	title string
	begin func(a *arena, leader *replicaProcess, cfg *rest.Config) error
	end   func(leader *replicaProcess) error
}

var losses = []loss{
	{
		"writes of a leader that was paused, after another replica leads",
		func(_ *arena, leader *replicaProcess, _ *rest.Config) error {
			return leader.cmd.Process.Signal(syscall.SIGSTOP)
		},
		func(leader *replicaProcess) error { return leader.cmd.Process.Signal(syscall.SIGCONT) },
	},
	{
		"the same, of a leader whose requests for the Lease fail",
		func(a *arena, _ *replicaProcess, cfg *rest.Config) error {
			a.proxy.Add(fault.Rule{Match: fault.Match{Config: cfg, Groups: []string{"coordination.k8s.io"}}, Cut: true})
			return nil
		},
		func(*replicaProcess) error { return nil },
	},
}

// lease counts the writes of a leader that arrive at the API server when another replica leads, and
// the writes that its client refuses. All replicas are processes with the defaults of the Lease.
func (p *bridge) lease(a *arena) func(context.Context) ([]bridgeRow, error) {
	return func(ctx context.Context) ([]bridgeRow, error) {
		rows, errs := make([]bridgeRow, len(losses)), make([]error, len(losses))
		var running sync.WaitGroup
		for n, l := range losses {
			running.Go(func() {
				rows[n] = bridgeRow{title: l.title, format: "%.0f"}
				late, notes := make([]int, len(bridgeContestants)), make([]string, len(bridgeContestants))
				errs[n] = a.bridged(ctx, func(ctx context.Context, i int, c bridgeContestant, namespace string) (err error) {
					late[i], notes[i], err = l.measure(ctx, a, c, namespace)
					return err
				})
				for i := range late {
					rows[n].add(notes[i], float64(late[i]))
				}
			})
		}
		running.Wait()
		return rows, errors.Join(errs...)
	}
}

func (l loss) measure(ctx context.Context, a *arena, c bridgeContestant, namespace string) (late int, note string, err error) {
	for i := range leaseWriters {
		if err := a.create(ctx, namespace, fmt.Sprintf("task-%d", i)); err != nil {
			return 0, "", err
		}
	}
	cfgs := make([]*rest.Config, 2)
	for i := range cfgs {
		if cfgs[i], err = a.proxy.Config(); err != nil {
			return 0, "", err
		}
	}
	replicas := newFleet(bridgeReplica+c.name, namespace, cfgs...)
	defer replicas.stop()
	leader, err := replicas.settle(ctx)
	if err != nil {
		return 0, "", err
	}
	cfg, other := cfgs[0], replicas.replicas[1]
	if leader == other {
		cfg, other = cfgs[1], replicas.replicas[0]
	}
	writes := fault.Match{Config: cfg, Resources: []string{"configmaps"}, Verbs: []string{"patch"}}
	if err := a.proxy.Add(fault.Rule{Match: writes}).WaitEnded(ctx, 2*leaseWriters); err != nil {
		return 0, "", err
	}
	if err := l.begin(a, leader, cfg); err != nil {
		return 0, "", err
	}
	if err := replicas.wait(ctx, "the other replica to lead", func() bool { return other.leads }); err != nil {
		return 0, "", err
	}
	arrived := a.proxy.Add(fault.Rule{Match: writes})
	if err := l.end(leader); err != nil {
		return 0, "", err
	}
	select {
	case <-leader.joined:
		note = "the process ends"
	case <-time.After(leaseWatch):
		note = "goes on as a standby"
	}
	replicas.mu.Lock()
	refused := leader.refused
	replicas.mu.Unlock()
	return arrived.Hits(), fmt.Sprintf("%d refused, %s", refused, note), nil
}

// bridge is a replica whose Reconciles write one patch after the other.
func (o *replicaOrders) bridge(ctx context.Context, cfg *rest.Config, c bridgeContestant) error {
	mgr, err := c.managerOf(cfg, o.Namespace, func(m *crmanager.Options) {
		m.LeaderElection, m.LeaderElectionID, m.LeaderElectionNamespace = true, leaseName, o.Namespace
	})
	if err != nil {
		return err
	}
	err = c.complete(mgr, wiring{object: &corev1.ConfigMap{}, workers: leaseWriters}, reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		var m corev1.ConfigMap
		if err := mgr.GetClient().Get(ctx, req.NamespacedName, &m); err != nil {
			return reconcile.Result{}, crclient.IgnoreNotFound(err)
		}
		for i := range 100 {
			after := m.DeepCopy()
			after.Data = map[string]string{"writer": o.Identity, "write": fmt.Sprint(i)}
			if err := mgr.GetClient().Patch(ctx, after, crclient.MergeFrom(&m)); err != nil {
				tell("refused", req.Name)
				return reconcile.Result{}, err
			}
			time.Sleep(leaseWrites)
		}
		return reconcile.Result{RequeueAfter: leaseWrites}, nil
	}))
	if err != nil {
		return err
	}
	return startAndTell(ctx, mgr)
}
