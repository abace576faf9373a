// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	crsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/workqueue"
)

const (
	newTenantKeys = 5
	mostOthers    = 12 // bound of keys of other tenants before the last of newTenantKeys
)

// landlord is the state of one measurement. A namespace has many ready keys. When 1,000 of them are
// reconciled, another namespace gets newTenantKeys.
type landlord struct {
	crowd, late []key

	mu      sync.Mutex // guards what follows
	others  int        // Reconciles of the crowd
	left    int        // keys of late
	before  int        // others when late was added
	result  int        // others between that and the last of late
	arrived chan struct{}
	ended   chan struct{}
}

func newLandlord(n int) *landlord {
	l := &landlord{left: newTenantKeys, arrived: make(chan struct{}), ended: make(chan struct{})}
	for i := range n {
		l.crowd = append(l.crowd, key{Namespace: "crowd", Name: strconv.Itoa(i)})
	}
	for i := range newTenantKeys {
		l.late = append(l.late, key{Namespace: "late", Name: strconv.Itoa(i)})
	}
	return l
}

// reconcile is every contestant's Reconcile.
func (l *landlord) reconcile(k key) {
	l.note(k)
	time.Sleep(fairReconcile)
}

func (l *landlord) note(k key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.Namespace == "crowd" {
		if l.others++; l.others == 1000 {
			close(l.arrived)
		}
		return
	}
	if l.left--; l.left == 0 {
		l.result = l.others - l.before
		close(l.ended)
	}
}

// measure lets the late tenant come, and returns how many others are reconciled before its last
// key.
func (l *landlord) measure(ctx context.Context, run func(ctx context.Context, add chan<- func(key)) error) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	adds, failed := make(chan func(key), 1), make(chan error, 1)
	go func() { failed <- run(ctx, adds) }()
	var add func(key)
	select {
	case add = <-adds:
	case err := <-failed:
		return 0, err
	}
	for _, k := range l.crowd {
		add(k)
	}
	for _, step := range []struct {
		until chan struct{}
		then  func()
	}{{l.arrived, func() {
		l.mu.Lock()
		l.before = l.others
		l.mu.Unlock()
		for _, k := range l.late {
			add(k)
		}
	}}, {l.ended, cancel}} {
		select {
		case <-step.until:
			step.then()
		case err := <-failed:
			return 0, errors.Join(err, context.Cause(ctx))
		}
	}
	return l.result, <-failed
}

// tenantContestants get ready, send their add, and reconcile until ctx is done.
func tenantContestants(l *landlord) []struct {
	name string
	most int
	run  func(ctx context.Context, adds chan<- func(key)) error
} {
	ours := func(tenants bool) func(ctx context.Context, adds chan<- func(key)) error {
		return func(ctx context.Context, adds chan<- func(key)) error {
			c := controller.New("tenants", controller.Func[key](func(_ context.Context, k key) (controller.Result, error) {
				l.reconcile(k)
				return controller.Result{}, nil
			}), controller.Options{Workers: fairWorkers, NamespaceTenants: tenants, Logger: slog.New(slog.DiscardHandler)})
			adds <- func(k key) { c.Queue().AddWith(k, workqueue.AddOptions{}) }
			return c.Run(ctx)
		}
	}
	return []struct {
		name string
		most int
		run  func(ctx context.Context, adds chan<- func(key)) error
	}{
		{"setpoint, NamespaceTenants", mostOthers, ours(true)},
		{"setpoint", 0, ours(false)},
		{"controller-runtime", 0, l.controllerRuntime},
	}
}

func (l *landlord) controllerRuntime(ctx context.Context, adds chan<- func(key)) error {
	o := crmanager.Options{Metrics: server.Options{BindAddress: "0"}, Logger: quietLog, MapperProvider: configMapMapper}
	o.Controller.SkipNameValidation = new(true)
	mgr, err := crmanager.New(sim.NewServer(sim.ConfigMaps).Config(), o)
	if err != nil {
		return err
	}
	ready := crsource.Func(func(_ context.Context, q clientgo.TypedRateLimitingInterface[reconcile.Request]) error {
		adds <- func(k key) { q.Add(reconcile.Request{NamespacedName: k}) }
		return nil
	})
	err = builder.ControllerManagedBy(mgr).Named("tenants").WatchesRawSource(ready).
		WithOptions(crcontroller.Options{MaxConcurrentReconciles: fairWorkers}).
		Complete(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			l.reconcile(req.NamespacedName)
			return reconcile.Result{}, nil
		}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// tenants prints how long a namespace with few keys waits behind one with many.
func (f *fairness) tenants(ctx context.Context, w *report) error {
	fmt.Fprintf(w, "a namespace with %d ready keys, %d workers; another adds %d\tothers before the last of the %d\tbound\t\t\n",
		f.keys, fairWorkers, newTenantKeys, newTenantKeys)
	for i := range 3 {
		l := newLandlord(f.keys)
		c := tenantContestants(l)[i]
		n, err := l.measure(ctx, c.run)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		bound := "\t"
		if c.most > 0 {
			bound = fmt.Sprintf("%d\t%s", c.most, verdict(n <= c.most))
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t\n", c.name, n, bound)
		w.Flush()
	}
	fmt.Fprintln(w)
	return nil
}
