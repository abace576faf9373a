// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/term"
)

// asReplica in the environment makes this program a replica.
const asReplica = "SETPOINT_HA_REPLICA"

const leaseName = "ha-operator"

// replicaMain runs a replica and returns its exit status.
func replicaMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	in := bufio.NewReader(os.Stdin)
	var o orders
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "ha: cannot read the replica's orders: %v\n", err)
		return exitFailure
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(exitFailure) // the driver is gone
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("replica", o.Identity)
	klog.SetSlogLogger(log)
	mgr, err := o.operator(&reporter{out: os.Stdout}, log)
	if err == nil {
		err = mgr.Run(ctx)
	}
	if err != nil {
		log.Error("ended", "err", err)
		return exitFailure
	}
	return exitOK
}

// operator returns the program that each replica runs.
func (o *orders) operator(r *reporter, log *slog.Logger) (*manager.Manager, error) {
	cfg, err := o.config(r)
	if err != nil {
		return nil, err
	}
	mgr := manager.New(cfg, manager.Options{
		Name: "ha", Logger: log, Grace: 5 * time.Second,
		LeaderElection: &leaderelection.Options{
			Lease: leaseName, Namespace: o.Namespace, Identity: o.Identity, LeaseDuration: o.Lease,
			Hook: hook.Join(
				hook.On(func(e *hook.LeaseHolder) { r.tell(report{What: follows, Who: e.Identity}) }),
				hook.On(func(*hook.LeaseLost) {
					log.Warn("lost the term")
					r.tell(report{What: lost})
				}),
			),
		},
	})
	ours := cache.NewSet(o.Namespace)
	tasks := cache.ForScope[*corev1.ConfigMap](mgr.Cache(), cache.Scope{Namespaces: ours, Labels: labels.SelectorFromSet(taskLabels)})
	c := controller.New("tasks", &reconciler{o, r, tasks, client.For[*corev1.ConfigMap](mgr.Client())}, controller.Options{Workers: 2})
	c.Watch(source.Kind(tasks, handler.Self()))
	mgr.Add(c)
	w := &writer{o, r, client.For[*corev1.ConfigMap](mgr.Client())}
	mgr.AddLeaderOnly("the writer", w.lead)
	mgr.AddEverywhere("readiness", func(ctx context.Context) error {
		if mgr.WaitReady(ctx) == nil {
			r.tell(report{What: isWarm})
		}
		return nil
	})
	return mgr, nil
}

// taskLabels are the labels of tasks.
var taskLabels = labels.Set{"example.com/task": "true"}

// reconciler does the tasks: it writes its identity into each.
type reconciler struct {
	*orders
	*reporter

	tasks  *cache.Handle[*corev1.ConfigMap]
	writes *client.Handle[*corev1.ConfigMap]
}

// Reconcile implements controller.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	r.tell(report{What: reconciled, Key: key.Name})
	task, err := r.tasks.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil || task.Data["done-by"] != "" {
		return controller.Result{}, err
	}
	task.Data = map[string]string{"done-by": r.Identity}
	ctx, _ = r.request(ctx, serves)
	_, err = r.writes.Update(ctx, task)
	return controller.Result{}, err
}

// request labels the requests of a context, and removes its term if Unfenced.
func (o *orders) request(ctx context.Context, sort string) (context.Context, string) {
	token := term.FromContext(ctx).Token().ResourceVersion
	if o.Unfenced {
		ctx = term.Without(ctx)
	}
	return withLabel(ctx, token, sort), token
}
