// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// stop counts the Reconciles that a stop cuts off. Each needs two seconds, as calls of another
// service with its context do, and then writes.
func (p *bridge) stop(a *arena) func(context.Context) ([]bridgeRow, error) {
	return func(ctx context.Context) ([]bridgeRow, error) {
		finished := make([]int, len(bridgeContestants))
		err := a.bridged(ctx, func(ctx context.Context, i int, c bridgeContestant, namespace string) (err error) {
			finished[i], err = stopped(ctx, a, c, namespace)
			return err
		})
		row := bridgeRow{title: fmt.Sprintf("cut off by SIGTERM, of %d running Reconciles of 2 s", workersOfEach), format: "%.0f"}
		for _, n := range finished {
			row.add("", float64(workersOfEach-n))
		}
		return []bridgeRow{row}, err
	}
}

// stopped stops a contestant while all its workers reconcile, and returns the number of Reconciles
// that have written.
func stopped(ctx context.Context, a *arena, c bridgeContestant, namespace string) (finished int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := range workersOfEach {
		if err := a.create(ctx, namespace, fmt.Sprintf("task-%d", i)); err != nil {
			return 0, err
		}
	}
	mgr, err := a.manager(c, namespace, 0)
	if err != nil {
		return 0, err
	}
	begun := make(chan bool, 2*workersOfEach)
	var wrote atomic.Int64
	r := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		var m corev1.ConfigMap
		if err := mgr.GetClient().Get(ctx, req.NamespacedName, &m); err != nil || m.Data != nil {
			return reconcile.Result{}, err
		}
		begun <- true
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return reconcile.Result{}, ctx.Err()
		}
		err := mgr.GetClient().Patch(ctx, done(m.DeepCopy()), crclient.MergeFrom(&m))
		if err == nil {
			wrote.Add(1)
		}
		return reconcile.Result{}, err
	})
	if err := c.complete(mgr, wiring{object: &corev1.ConfigMap{}, workers: workersOfEach}, r); err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	for range workersOfEach {
		select {
		case <-begun:
		case err := <-ended:
			return 0, errors.Join(errors.New("the manager ended before all workers reconciled"), err)
		}
	}
	stop()
	err = <-ended
	return int(wrote.Load()), err
}
