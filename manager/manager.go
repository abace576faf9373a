// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

// Controller is what Add takes. A *controller.Controller is one.
type Controller interface {
	// Name is unique in a manager.
	Name() string
	// Validate says, before anything runs, what is wrong.
	Validate() error
	// Warm keeps the controller current until ctx is done, and joins what it started.
	Warm(ctx context.Context) error
	// Lead acts for one term: it takes new work until take is done, and does it on work. It joins what it started.
	Lead(take, work context.Context) error
	// Synced is closed when the controller could lead.
	Synced() <-chan struct{}
}

// Manager runs one process. New makes one.
type Manager struct {
	o       Options
	client  *client.Client
	cache   *cache.Cache
	elector *leaderelection.Elector
	ready   chan struct{}

	mu          sync.Mutex // guards what follows
	wrong       []error    // what Run reports instead of running
	controllers []Controller
	everywhere  []runnable
	leaderOnly  []runnable
	ran         bool
}

// runnable is a function with a name. It runs until its context is done.
type runnable struct {
	name string
	run  func(ctx context.Context) error
}

// New makes a manager for the API server that a copy of cfg names. It starts nothing and makes no request. What is wrong with
// the arguments is reported by Run.
func New(cfg *rest.Config, o Options) *Manager {
	m := &Manager{o: o.withDefaults(), ready: make(chan struct{})}
	m.complain(o.Validate())
	if cfg == nil {
		m.complain(errors.New("the rest.Config is nil; client.LoadConfig finds one"))
		cfg = &rest.Config{}
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = o.Name + " " + rest.DefaultKubernetesUserAgent()
	}
	var err error
	m.client, err = client.New(cfg, client.Options{Scheme: o.Scheme, FieldOwner: m.o.FieldOwner})
	if err != nil {
		m.complain(err)
		m.client, _ = client.New(&rest.Config{}, client.Options{Scheme: o.Scheme}) // so that handles can be made; Run refuses
	}
	m.cache = cache.New(m.client, cache.Options{Hooks: m.cacheHooks()})
	if o.LeaderElection != nil && o.LeaderElection.Validate() == nil {
		le := *o.LeaderElection
		if le.Hooks == nil {
			le.Hooks = m.leaderElectionHooks()
		}
		m.elector, err = leaderelection.New(cfg, le)
		m.complain(err)
	}
	return m
}

func (m *Manager) complain(err error) {
	if err == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = append(m.wrong, err)
}

// Cache returns the manager's cache. Run runs it.
func (m *Manager) Cache() *cache.Cache { return m.cache }

// Client returns the manager's client.
func (m *Manager) Client() *client.Client { return m.client }

// Ready is closed when every controller is synced: the replica leads, or could. It stays open when Run fails before.
func (m *Manager) Ready() <-chan struct{} { return m.ready }

// Add adds a controller. Call it before Run.
func (m *Manager) Add(c Controller) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c == nil {
		m.wrong = append(m.wrong, errors.New("Add was given no controller"))
		return
	}
	m.tooLateLocked(c.Name())
	m.controllers = append(m.controllers, c)
}

// AddEverywhere adds a function that runs on every replica, leader or not, until its context is done. It may return earlier;
// an error ends the manager's Run. Call it before Run.
func (m *Manager) AddEverywhere(name string, run func(ctx context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tooLateLocked(name)
	m.everywhere = append(m.everywhere, runnable{name, run})
}

// AddLeaderOnly adds a function that runs in each term of this replica's leadership, or once if there is no leader election,
// until its context is done. It may return earlier; an error ends the manager's Run. Call it before Run.
func (m *Manager) AddLeaderOnly(name string, run func(ctx context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tooLateLocked(name)
	m.leaderOnly = append(m.leaderOnly, runnable{name, run})
}

// tooLateLocked logs what is added after Run has started, and will therefore not run.
func (m *Manager) tooLateLocked(name string) {
	if m.ran {
		m.o.Logger.Error("added after Run: it will not run; add it before", "name", name)
	}
}

// validate returns everything that is wrong with the wiring, by name, and marks the manager as used.
func (m *Manager) validate() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	wrong := append(m.wrong[:len(m.wrong):len(m.wrong)], m.cache.Validate())
	if m.ran {
		wrong = append(wrong, errors.New("it has run before; make a new one"))
	}
	m.ran = true
	seen := map[string]bool{}
	for _, c := range m.controllers {
		wrong = append(wrong, c.Validate())
		if seen[c.Name()] {
			wrong = append(wrong, fmt.Errorf("two controllers are named %q; give each a name of its own", c.Name()))
		}
		seen[c.Name()] = true
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("the manager %q cannot run: %w", m.o.Name, err)
	}
	return nil
}

// cacheHooks logs informers that wait, fail or recover.
func (m *Manager) cacheHooks() *hook.Cache {
	return &hook.Cache{InformerState: func(s hook.InformerState) {
		if s.Err != nil {
			m.o.Logger.Warn("an informer is "+string(s.Phase), "kind", s.Kind, "err", s.Err)
			return
		}
		m.o.Logger.Info("an informer is well again", "kind", s.Kind)
	}}
}

// leaderElectionHooks logs terms.
func (m *Manager) leaderElectionHooks() *hook.LeaderElection {
	log := m.o.Logger
	return &hook.LeaderElection{
		Acquired: func(lease string) { log.Info("leading", "lease", lease) },
		Lost:     func(lease string) { log.Error("the lease is lost", "lease", lease) },
		Released: func(lease string, err error) {
			if err != nil {
				log.Warn("the lease could not be released; it will expire", "lease", lease, "err", err)
				return
			}
			log.Info("the lease is released", "lease", lease)
		},
		Leader: func(lease, identity string) { log.Info("somebody else leads", "lease", lease, "leader", identity) },
	}
}
