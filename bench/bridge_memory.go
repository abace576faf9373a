// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http/httptest"

	corev1 "k8s.io/api/core/v1"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// memory measures the live heap of an operator after its first Reconciles, in its own process. One
// half of the objects are custom resources, the other Pods.
func (p *bridge) memory(ctx context.Context) ([]bridgeRow, error) {
	each := p.objects / 2
	server := httptest.NewServer(newPackedServer(0, servedKind{packedKindOf("typed"), each}, servedKind{packedKindOf("pods"), each}))
	defer server.Close()
	heapOf := func(name string) (float64, error) {
		f, err := packedOrders{Job: operator, Contestant: name, Kind: "typed", Objects: each, Server: server.URL}.child(ctx)
		return f[heapFigure] / 1e6, err
	}
	title := fmt.Sprintf("live heap, %d custom resources of 2 KB and %d Pods of 1.6 KB", each, each)
	all := bridgeRow{title: title, format: "%.0f MB", compared: true}
	bare := bridgeRow{title: "the same, all without managedFields", format: "%.0f MB", compared: true}
	for _, c := range bridgeContestants {
		heap, err := heapOf(c.name)
		if err != nil {
			return nil, err
		}
		all.add("", heap)
		// crbridge drops them by default.
		if other := map[string]string{runtimeName: runtimeBare, optionName: optionBare}[c.name]; other != "" {
			if heap, err = heapOf(other); err != nil {
				return nil, err
			}
		}
		bare.add("", heap)
	}
	return []bridgeRow{all, bare}, nil
}

// bridgeOperates is the operator.
func bridgeOperates(contestant string, bare bool) func(context.Context, *packedRun) error {
	return func(ctx context.Context, r *packedRun) error {
		c := bridgeContestantOf(contestant)
		o := c.options(newPackedScheme())
		if bare {
			o.Cache.DefaultTransform = crcache.TransformStripManagedFields()
		}
		mgr, err := c.newManager(r.config, o)
		if err != nil {
			return err
		}
		err = c.complete(mgr, wiring{object: r.kind.runtimes(), owned: &corev1.Pod{}, workers: workersOfEach}, reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			o := r.kind.runtimes()
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, o); err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{}, r.reconciled(o)
		}))
		if err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
}
