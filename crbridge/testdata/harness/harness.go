// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package harness runs published operators with controller-runtime and at both levels of crbridge.
package harness

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	theirs "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// Operator is a published operator.
type Operator struct {
	Lease  string
	Scheme []func(*runtime.Scheme) error // beside client-go's
	CRDs   []string                      // below the operator's source
	More   []string                      // further CRDs, beside the test
	// Unchanged adds the controllers as the operator does. Bridged uses the builder of crbridge.
	Unchanged, Bridged func(ctrl.Manager) error
	// Check uses the operator as a user would, and deletes what it has created.
	Check func(t *testing.T, admin client.Client)
}

// Level is a way to wire the reconcilers.
type Level string

const (
	ControllerRuntime Level = "controller-runtime"
	A                 Level = "level a"
	B                 Level = "level b"
)

// Start runs the operator until the test ends.
func (o *Operator) Start(t *testing.T, level Level, cfg *rest.Config) {
	t.Helper()
	log.SetLogger(logr.Discard()) // some operators log with it
	options := ctrl.Options{
		Scheme: o.scheme(t), Logger: testr.New(t), Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: o.Lease, LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
		Controller: config.Controller{SkipNameValidation: new(true)},
	}
	newManager, setUp := ctrl.NewManager, o.Unchanged
	switch level {
	case ControllerRuntime:
		newManager = theirs.NewManager
		options.Logger = logr.Discard() // it logs after Start has returned
	case B:
		setUp = o.Bridged
	}
	mgr, err := newManager(cfg, options)
	if err == nil {
		err = setUp(mgr)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (o *Operator) scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range append([]func(*runtime.Scheme) error{scheme.AddToScheme}, o.Scheme...) {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Simulated checks controller-runtime and both levels on the simulated API server.
func (o *Operator) Simulated(t *testing.T) {
	for _, level := range []Level{ControllerRuntime, A, B} {
		t.Run(string(level), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := sim.New(t, o.scheme(t))
				o.Start(t, level, server.Config())
				o.Check(t, o.admin(t, server.Config()))
			})
		})
	}
}

func (o *Operator) admin(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: o.scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Real checks controller-runtime and both levels on a real API server. The environment variable
// OPERATOR_DIR names the operator's source.
func (o *Operator) Real(t *testing.T) {
	crds := o.More
	for _, dir := range o.CRDs {
		crds = append(crds, filepath.Join(os.Getenv("OPERATOR_DIR"), dir))
	}
	cluster, err := envtest.Start(t.Context(), envtest.Options{CRDs: crds})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, level := range []Level{ControllerRuntime, A, B} {
		t.Run(string(level), func(t *testing.T) {
			o.Start(t, level, cluster.Config())
			o.Check(t, o.admin(t, cluster.Config()))
		})
	}
}

// Eventually calls f until it returns nil, for up to a minute.
func Eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
