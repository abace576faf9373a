// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	elector "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	crconfig "sigs.k8s.io/controller-runtime/pkg/config"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// asReplica in the environment makes this program a replica of an operator.
const asReplica = "SETPOINT_BENCH_REPLICA"

// The Lease of all contestants. 15 s, 10 s and 2 s are their common defaults.
const (
	leaseSeconds = 15
	leaseName    = "operator"
)

// replicaOrders is the configuration of a replica, on its standard input. The replica ends when
// that closes.
type replicaOrders struct {
	Contestant, Host, Token string
	CA                      []byte
	Namespace, Identity     string
	Widgets                 bool // watch a kind that is not served
	Verbose                 bool
}

// widget is a kind that the API server does not serve.
var widget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// replicaMain runs a replica.
func replicaMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	in := bufio.NewReader(os.Stdin)
	var o replicaOrders
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(1) // the driver is gone
	}()
	out := io.Discard
	if o.Verbose {
		out = os.Stderr
	}
	log := slog.New(slog.NewTextHandler(out, nil)).With("replica", o.Identity)
	klog.SetSlogLogger(log)
	crlog.SetLogger(logr.FromSlogHandler(log.Handler()))
	cfg := &rest.Config{Host: o.Host, BearerToken: o.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: o.CA}}
	if name, ok := strings.CutPrefix(o.Contestant, bridgeReplica); ok {
		return o.bridge(ctx, cfg, bridgeContestantOf(name))
	}
	switch o.Contestant {
	case "setpoint":
		return o.setpoint(ctx, cfg, log)
	case "controller-runtime":
		return o.controllerRuntime(ctx, cfg, log)
	default:
		return o.clientGo(ctx, cfg)
	}
}

var telling sync.Mutex // one line at a time

// tell reports to the driver with the wall clock, which all processes share.
func tell(what, name string) {
	at := time.Now().UnixNano()
	telling.Lock()
	defer telling.Unlock()
	fmt.Println(what, at, name)
}

// done sets what a Reconcile writes: one short update, with each contestant's client.
func done(m *corev1.ConfigMap) *corev1.ConfigMap {
	m.Data = map[string]string{"done": "yes"}
	return m
}

func doneOf(m *corev1.ConfigMap) []string { return []string{m.Data["done"]} }

func (o *replicaOrders) setpoint(ctx context.Context, cfg *rest.Config, log *slog.Logger) error {
	mgr := manager.New(cfg, manager.Options{
		Name: "bench", Logger: log,
		LeaderElection: &leaderelection.Options{Lease: leaseName, Namespace: o.Namespace, Identity: o.Identity},
	})
	scope := cache.Scope{Namespaces: cache.NewSet(o.Namespace)}
	// Both operators have an index, as most do.
	objects, writes := cache.ForScope[*corev1.ConfigMap](mgr.Cache(), scope), client.For[*corev1.ConfigMap](mgr.Client())
	cache.NewIndex(objects, "done", doneOf)
	c := controller.New("tasks", controller.Func[key](func(ctx context.Context, k key) (controller.Result, error) {
		tell("reconcile", k.Name)
		m, err := objects.Get(ctx, k)
		if err == nil && m.Data == nil {
			_, err = writes.Update(ctx, done(m))
		}
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return controller.Result{}, err
	}), controller.Options{Workers: workersOfEach})
	c.Watch(source.Kind(objects, handler.Self()))
	if o.Widgets {
		scope.Kind = widget
		c.Watch(source.Kind(cache.ForScope[*unstructured.Unstructured](mgr.Cache(), scope), handler.Self()))
	}
	mgr.Add(c)
	mgr.AddLeaderOnly("tell", func(context.Context) error { tell("leads", ""); return nil })
	mgr.AddEverywhere("tell", func(ctx context.Context) error {
		if mgr.WaitReady(ctx) == nil {
			tell("warm", "")
		}
		return nil
	})
	return mgr.Run(ctx)
}

func (o *replicaOrders) controllerRuntime(ctx context.Context, cfg *rest.Config, log *slog.Logger) error {
	mgr, err := crmanager.New(cfg, crmanager.Options{
		Metrics: server.Options{BindAddress: "0"}, Logger: logr.FromSlogHandler(log.Handler()),
		Cache:          crcache.Options{DefaultNamespaces: map[string]crcache.Config{o.Namespace: {}}},
		Controller:     crconfig.Controller{EnableWarmup: new(true), MaxConcurrentReconciles: workersOfEach},
		LeaderElection: true, LeaderElectionID: leaseName, LeaderElectionNamespace: o.Namespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	err = mgr.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, "done", func(o crclient.Object) []string { return doneOf(o.(*corev1.ConfigMap)) })
	if err != nil {
		return err
	}
	a := accessOf(mgr.GetClient())
	b := builder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{})
	if o.Widgets {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(widget)
		b = b.Owns(u)
	}
	err = b.Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		tell("reconcile", req.Name)
		m, err := a.child(ctx, req.NamespacedName)
		if err == nil && m != nil && m.Data == nil {
			_, err = a.update(ctx, done(m))
		}
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return reconcile.Result{}, err
	}))
	if err != nil {
		return err
	}
	return startAndTell(ctx, mgr)
}

// startAndTell starts a manager of controller-runtime's interface.
func startAndTell(ctx context.Context, mgr crmanager.Manager) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-mgr.Elected():
			tell("leads", "")
		case <-running.Done():
		}
	}()
	go func() {
		if mgr.GetCache().WaitForCacheSync(running) {
			tell("warm", "")
		}
	}()
	return mgr.Start(ctx)
}

// clientGo runs only client-go's elector.
func (o *replicaOrders) clientGo(ctx context.Context, cfg *rest.Config) error {
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	tell("warm", "")
	elector.RunOrDie(ctx, elector.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: leaseName}, Client: c.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
		},
		LeaseDuration: leaseSeconds * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: elector.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { tell("leads", ""); <-ctx.Done() },
			OnStoppedLeading: func() {},
		},
	})
	return nil
}
