// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	theirs "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/server"
)

// Add adds a Runnable: a controller of controller-runtime, a cluster, a server or any other one. As
// in controller-runtime, it needs the Lease unless NeedLeaderElection returns false. During Start
// it starts at once. When the context of Start has ended, Add returns an error.
func (b *Bridge) Add(r theirs.Runnable) error {
	b.mu.Lock()
	stopping := b.stopping
	b.mu.Unlock()
	select {
	case <-stopping:
		return fmt.Errorf("crbridge: %T was added too late: can't accept new runnable as stop procedure is already engaged", r)
	default:
	}
	switch known := r.(type) {
	case nil:
		return errors.New("crbridge: the Runnable is nil")
	case *built:
		return errors.New("crbridge: Build has added the controller already")
	case controller.Controller:
		b.host(known)
	case webhook.Server:
		s, err := b.newWebhookServer(known)
		if err != nil {
			return err
		}
		b.addWebhooks(s)
	case cluster.Cluster:
		b.everywhere(r)
	default:
		if l, ok := r.(theirs.LeaderElectionRunnable); ok && !l.NeedLeaderElection() {
			b.everywhere(r)
			break
		}
		b.leaderOnly(r)
	}
	return nil
}

// nameOf returns a name for errors and logs. Names are unique.
func (b *Bridge) nameOf(r any) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.added++
	return fmt.Sprintf("%T#%d", r, b.added)
}

func (b *Bridge) everywhere(r theirs.Runnable) {
	b.manager.AddEverywhere(b.nameOf(r), func(ctx context.Context) error { return r.Start(b.based(ctx)) })
}

// leaderOnly runs r in one term. Runnables of controller-runtime expect that the process ends with
// their term.
func (b *Bridge) leaderOnly(r theirs.Runnable) {
	b.manager.AddLeaderOnly(b.nameOf(r), func(ctx context.Context) error {
		return errors.Join(r.Start(b.based(ctx)), lost(ctx))
	})
}

// lost returns an error if the term of a context is lost.
func lost(ctx context.Context) error {
	// The error does not wrap the cause: the manager takes such an error for the end of the term.
	if cause := context.Cause(ctx); errors.Is(cause, leaderelection.ErrLost) {
		return fmt.Errorf("leader election lost, and what runs under the Lease cannot start again in this process: %v", cause) //nolint:errorlint // see above
	}
	return nil
}

// addAll adds what a manager of controller-runtime always runs.
func (b *Bridge) addAll() {
	b.manager.AddEverywhere("cache and events of controller-runtime", func(ctx context.Context) error { return b.Cluster.Start(b.based(ctx)) })
	var once sync.Once
	b.manager.AddLeaderOnly("elected", func(context.Context) error {
		once.Do(func() { close(b.elected) })
		return nil
	})
	if b.metrics != nil {
		b.everywhere(b.metrics)
	}
	if address := b.options.HealthProbeBindAddress; address != "" && address != "0" {
		server.AddHealth(b.manager, server.Options{Address: address})
	}
	if address := b.options.PprofBindAddress; address != "" && address != "0" {
		s := server.Add(b.manager, server.Options{Name: "pprof", Address: address, Plain: true})
		s.Handle("/debug/pprof/", http.HandlerFunc(pprof.Index))
		s.Handle("/debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline))
		s.Handle("/debug/pprof/profile", http.HandlerFunc(pprof.Profile))
		s.Handle("/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
		s.Handle("/debug/pprof/trace", http.HandlerFunc(pprof.Trace))
	}
}
