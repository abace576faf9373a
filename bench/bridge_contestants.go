// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	crhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	crsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/setpoint-dev/setpoint/crbridge"
)

// bridgeContestant is how an operator of controller-runtime may run. Its Reconciler is the same in
// all of them.
type bridgeContestant struct {
	name       string
	newManager func(*rest.Config, crmanager.Options) (crmanager.Manager, error)
	bridged    bool // the controllers are made by crbridge, too
	consistent bool // EnableReadYourWritesConsistency, off by default
}

const (
	optionName = "controller-runtime, read your writes"
	levelAName = "crbridge, level a"
	levelBName = "crbridge, level b"
)

// bridgeContestants are what an operator has today, and what one import after the other makes of
// it. The first is the base of the ratios.
var bridgeContestants = []bridgeContestant{
	{runtimeName, crmanager.New, false, false},
	{optionName, crmanager.New, false, true},
	{levelAName, crbridge.NewManager, false, false},
	{levelBName, crbridge.NewManager, true, false},
}

func bridgeContestantOf(name string) bridgeContestant {
	return bridgeContestants[slices.IndexFunc(bridgeContestants, func(c bridgeContestant) bool { return c.name == name })]
}

// options returns the options of the contestant's manager: the defaults, without a metrics server.
func (c bridgeContestant) options(scheme *runtime.Scheme) crmanager.Options {
	o := crmanager.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, Logger: logr.FromSlogHandler(newLogHandler())}
	o.Client.Cache = &crclient.CacheOptions{EnableReadYourWritesConsistency: &c.consistent}
	o.Controller.SkipNameValidation = new(true) // a name repeats in each round
	return o
}

// wiring is what a controller watches.
type wiring struct {
	object  crclient.Object
	owned   crclient.Object // or nil
	watched crclient.Object // or nil; its key is the request
	source  crsource.Source // or nil
	workers int
}

// complete adds a controller to a manager of newManager.
func (c bridgeContestant) complete(mgr crmanager.Manager, w wiring, r reconcile.Reconciler) error {
	if c.bridged {
		return wire(crbridge.NewControllerManagedBy(mgr), w, r)
	}
	return wire(builder.ControllerManagedBy(mgr), w, r)
}

// fluent are the methods of controller-runtime's builder, which crbridge's has, too.
type fluent[B any] interface {
	For(object crclient.Object, opts ...builder.ForOption) B
	Owns(object crclient.Object, opts ...builder.OwnsOption) B
	Watches(object crclient.Object, by crhandler.EventHandler, opts ...builder.WatchesOption) B
	WatchesRawSource(src crsource.Source) B
	WithOptions(o crcontroller.Options) B
	Complete(r reconcile.Reconciler) error
}

func wire[B fluent[B]](b B, w wiring, r reconcile.Reconciler) error {
	b = b.For(w.object).WithOptions(crcontroller.Options{MaxConcurrentReconciles: w.workers})
	if w.owned != nil {
		b = b.Owns(w.owned)
	}
	if w.watched != nil {
		b = b.Watches(w.watched, &crhandler.EnqueueRequestForObject{})
	}
	if w.source != nil {
		b = b.WatchesRawSource(w.source)
	}
	return b.Complete(r)
}
