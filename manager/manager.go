// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/server"
)

// Manager runs one process. New makes one.
type Manager struct {
	*place // under which what is added leads, unless another Lease is named

	o       Options
	report  *report
	client  *client.Client
	cache   *cache.Cache
	leases  *leases
	server  *server.Server // for what Handle mounts
	probes  *probes
	servers []named // those that Run opens

	informers func() informers.SharedInformerFactory // made at its first use
}

// New makes a manager for the API server that a copy of cfg names. It starts nothing and makes no
// request. Run reports what is wrong with the arguments.
func New(cfg *rest.Config, o Options) *Manager {
	o = o.withDefaults()
	m := &Manager{o: o, report: &report{manager: o.Name, log: o.Logger}}
	m.report.failed(o.Validate())
	roster := newRoster(&m.o, m.report)
	m.connect(cfg, roster)
	m.cache = cache.New(m.client, cache.Options{Hooks: cacheHooks(m.report).With(o.CacheHooks)})
	m.informers = sync.OnceValue(m.newInformerFactory)
	m.leases = &leases{config: m.client.Config(), roster: roster} // whose hooks see requests for Leases
	elect := o.LeaderElection
	if elect != nil && elect.Validate() != nil { // Validate has said so
		elect = nil
	}
	main, err := m.leases.add(elect)
	m.report.failed(err)
	m.place = main.place
	m.makeServers()
	return m
}

// connect makes the client.
func (m *Manager) connect(cfg *rest.Config, roster *roster) {
	if cfg == nil {
		m.report.failed(errors.New("the rest.Config is nil; client.LoadConfig finds one"))
		cfg = &rest.Config{}
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = m.o.Name + " " + rest.DefaultKubernetesUserAgent()
	}
	var err error
	m.client, err = client.New(cfg, client.Options{
		Scheme: m.o.Scheme, FieldOwner: m.o.FieldOwner, Hooks: clientHooks(roster).With(m.o.ClientHooks), Strict: m.o.Strict,
	})
	if err != nil {
		m.report.failed(err)
		m.client, _ = client.New(&rest.Config{}, client.Options{Scheme: m.o.Scheme}) // so that handles can be made; Run refuses
	}
}

// named is a server, and the name of its field in Options.
type named struct {
	*server.Server

	field string
}

// makeServers makes the servers, which Run opens, and the checks.
func (m *Manager) makeServers() {
	var o server.Options
	var tls *server.Server
	if m.o.Server != nil {
		o = *m.o.Server
	}
	o.Client = m.client
	m.server, _ = server.New(o) // Validate has reported the error
	if m.o.Server != nil {
		tls = m.server
		m.servers = append(m.servers, named{tls, "Server"})
	}
	m.probes = newProbes(m.roster, m.leases, m.cache, tls)
	if m.o.Health != nil {
		health, _ := server.New(m.o.Health.server())
		m.report.failed(m.probes.Mount(health))
		m.servers = append([]named{{health, "Health"}}, m.servers...)
	}
}

// AddEverywhere adds a function that runs on every replica, leader or not, until its context is
// done. It may return earlier; an error ends the manager's Run. It may be added before Run or while
// it runs: then the function starts at once.
func (m *Manager) AddEverywhere(name string, run func(ctx context.Context) error) {
	m.roster.everywhere.addFunc("AddEverywhere", name, run)
}

// Lease has the process campaign for one more Lease, and returns it, for controllers and functions
// that run where it is held: they may lead on another replica than the rest. The campaign begins
// when something was added to the Lease and is warm. The Identity defaults to that of the process's
// first Lease. Lease may be called before Run or while it runs, from anywhere. Run reports invalid
// options, and two Leases of one name, in whichever namespace.
func (m *Manager) Lease(o leaderelection.Options) *Lease {
	l, err := m.leases.add(&o)
	m.report.failed(err)
	return l
}

// Remove stops one controller that was added, at any time: it takes no new key, its running
// Reconciles have the grace time to finish, then its sources stop, and its name is free again. It
// returns nil when all of it has returned, or the controller's error. When ctx ends earlier, the
// error names what still runs, and the stop continues. A Reconcile of the controller itself must
// not call Remove, which waits for it.
func (m *Manager) Remove(ctx context.Context, c Controller) error { return m.roster.remove(ctx, c) }

// Cache returns the manager's cache. Run runs it.
func (m *Manager) Cache() *cache.Cache { return m.cache }

// Client returns the manager's client.
func (m *Manager) Client() *client.Client { return m.client }

// Ready is closed when every controller that was added before Run could lead: each of its sources
// and handles is synced, or in trouble that the log names, such as a kind that is not served. It
// stays open when Run fails before.
func (m *Manager) Ready() <-chan struct{} { return m.roster.ready }

// InformerFactory returns a client-go SharedInformerFactory for components that take one. Its
// informers are those of the manager's cache, started and stopped with it: see
// package cache/factory. Each call returns the same one, and makes no request.
func (m *Manager) InformerFactory() informers.SharedInformerFactory { return m.informers() }

func (m *Manager) newInformerFactory() informers.SharedInformerFactory {
	var client kubernetes.Interface
	c, err := kubernetes.NewForConfigAndClient(m.client.Config(), m.client.HTTPClient())
	if err == nil {
		client = c
	} else {
		m.report.failed(fmt.Errorf("InformerFactory: %w", err))
	}
	return factory.New(m.cache, client)
}
