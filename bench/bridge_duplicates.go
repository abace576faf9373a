// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const duplicatesLag = 500 * time.Millisecond

// duplicates counts the surplus children of objects that each need one. Their names are generated,
// so the API server refuses none. Each object gets a change while its child is not in the cache.
func (p *bridge) duplicates(a *arena) func(context.Context) ([]bridgeRow, error) {
	return func(ctx context.Context) ([]bridgeRow, error) {
		row := bridgeRow{title: fmt.Sprintf("duplicates of %d children, watches %s late", p.keys, duplicatesLag), format: "%.0f"}
		for _, c := range bridgeContestants {
			n, err := p.children(ctx, a, c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			row.add("", float64(n-p.keys))
		}
		return []bridgeRow{row}, nil
	}
}

// children runs a contestant until its objects have children and nothing is due, and returns the
// number of children.
func (p *bridge) children(ctx context.Context, a *arena, c bridgeContestant) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	namespace, err := a.new(ctx)
	if err != nil {
		return 0, err
	}
	mgr, err := a.manager(c, namespace, duplicatesLag)
	if err != nil {
		return 0, err
	}
	if err := a.create(ctx, namespace, "first"); err != nil {
		return 0, err
	}
	var runs atomic.Int64
	synced, first := make(chan struct{}), sync.Once{}
	r := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		runs.Add(1)
		if req.Name == "first" {
			first.Do(func() { close(synced) })
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, ensureChild(ctx, mgr.GetClient(), req)
	})
	if err := c.complete(mgr, wiring{object: &corev1.ConfigMap{}, owned: &corev1.Secret{}, workers: workersOfEach}, r); err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	select {
	case <-synced:
		if err = p.createAndChange(ctx, a, namespace); err == nil {
			n, err = p.untilQuiet(ctx, a, namespace, &runs)
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	stop()
	return n, errors.Join(err, <-ended)
}

// ensureChild is the Reconcile: without a child in the cache, it creates one.
func ensureChild(ctx context.Context, c crclient.Client, req reconcile.Request) error {
	var owner corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &owner); err != nil {
		return crclient.IgnoreNotFound(err)
	}
	of := crclient.MatchingLabels{"of": owner.Name}
	var children corev1.SecretList
	if err := c.List(ctx, &children, crclient.InNamespace(owner.Namespace), of); err != nil || len(children.Items) > 0 {
		return err
	}
	gvk, err := apiutil.GVKForObject(&owner, c.Scheme())
	if err != nil {
		return err
	}
	return c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		GenerateName: owner.Name + "-", Namespace: owner.Namespace, Labels: of,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&owner, gvk)},
	}})
}

// createAndChange creates the objects and changes each one half a lag later: before its first
// Reconcile, which creates the child. The event of the change arrives before the child's.
func (p *bridge) createAndChange(ctx context.Context, a *arena, namespace string) error {
	maps := a.direct.CoreV1().ConfigMaps(namespace)
	errs := make([]error, p.keys)
	var users sync.WaitGroup
	for i := range p.keys {
		users.Go(func() {
			time.Sleep(time.Duration(i) * 20 * time.Millisecond) // no queue at the workers
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("owner-%d", i)}}
			m, err := maps.Create(ctx, m, metav1.CreateOptions{})
			if err == nil {
				time.Sleep(duplicatesLag / 2)
				m.Data = map[string]string{"changed": "yes"}
				_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
			}
			errs[i] = err
		})
	}
	users.Wait()
	return errors.Join(errs...)
}

// untilQuiet returns the number of children once each object has one, and no Reconcile has run for
// several lags.
func (p *bridge) untilQuiet(ctx context.Context, a *arena, namespace string, runs *atomic.Int64) (int, error) {
	for before := int64(-1); ; {
		list, err := a.direct.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		now := runs.Load()
		if n := len(list.Items); n >= p.keys && now == before {
			return n, nil
		}
		before = now
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d objects have a child, and Reconciles go on: %w", len(list.Items), p.keys, ctx.Err())
		case <-time.After(4 * duplicatesLag):
		}
	}
}
