// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
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
	// Synced is closed when the controller could lead: nothing that it needs is still on its way. What cannot be had, for now,
	// does not keep it.
	Synced() <-chan struct{}
}

// Manager runs one process. New makes one.
type Manager struct {
	o      Options
	config *rest.Config // of the requests for Leases
	client *client.Client
	cache  *cache.Cache
	main   *Lease // under which what is added leads, unless another is named
	ready  chan struct{}
	health health
	web    web

	informers func() informers.SharedInformerFactory // made at its first use

	mu              sync.Mutex // guards what follows
	wrong           []error    // what Run reports instead of running
	ran             bool       // Run has begun
	log             *slog.Logger
	controllers     []*removable
	disabled        []*removable              // those that Options.Controllers leaves out
	unshown         map[string][]client.Write // of controllers that were removed, by their names
	everywhere      []runnable
	leases          []*Lease
	identity        string         // of the process, in all Leases that are given none
	stopping        bool           // what is added will not be started
	fail            func(error)    // once Run has begun, ends it
	startEverywhere func(runnable) // once Run has begun
	startCampaign   func(*Lease)   // once Run has begun
}

// runnable is a function with a name. It runs until its context is done.
type runnable struct {
	name string
	run  func(ctx context.Context) error
	of   *removable // if it is a controller's
}

// New makes a manager for the API server that a copy of cfg names. It starts nothing and makes no request. What is wrong with
// the arguments is reported by Run.
func New(cfg *rest.Config, o Options) *Manager {
	m := &Manager{o: o.withDefaults(), log: o.Logger, ready: make(chan struct{})}
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
	m.client, err = client.New(cfg, client.Options{Scheme: o.Scheme, FieldOwner: m.o.FieldOwner, Hooks: m.clientHooks().With(o.ClientHooks), Strict: o.Strict})
	if err != nil {
		m.complain(err)
		cfg = &rest.Config{}
		m.client, _ = client.New(cfg, client.Options{Scheme: o.Scheme}) // so that handles can be made; Run refuses
	}
	m.cache = cache.New(m.client, cache.Options{Hooks: m.cacheHooks().With(o.CacheHooks)})
	m.informers = sync.OnceValue(m.newInformerFactory)
	m.config = m.client.Config()                                   // whose hooks are told
	if le := o.LeaderElection; le != nil && le.Validate() != nil { // Validate has said so
		o.LeaderElection = nil
	}
	m.main, err = m.newLease(o.LeaderElection)
	m.complain(err)
	m.leases = []*Lease{m.main}
	return m
}

// complain has Run fail: before it starts anything, or, later, by stopping everything.
func (m *Manager) complain(err error) {
	if err == nil {
		return
	}
	m.mu.Lock()
	m.wrong = append(m.wrong, err)
	fail := m.fail
	m.mu.Unlock()
	if fail != nil {
		fail(err)
	}
}

// Cache returns the manager's cache. Run runs it.
func (m *Manager) Cache() *cache.Cache { return m.cache }

// Client returns the manager's client.
func (m *Manager) Client() *client.Client { return m.client }

// Ready is closed when every controller that was added before Run could lead: each of its sources and handles is synced, or in
// trouble that the log names, such as a kind that is not served. It stays open when Run fails before.
func (m *Manager) Ready() <-chan struct{} { return m.ready }

func (m *Manager) logger() *slog.Logger {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.log == nil {
		return slog.Default()
	}
	return m.log
}

// validate returns everything that is wrong with the wiring, by name, and marks the manager as used. What is wrong with what is
// added from now on goes to fail.
func (m *Manager) validate(ctx context.Context, fail func(error)) error {
	m.mu.Lock()
	if m.ran {
		m.mu.Unlock()
		return fmt.Errorf("the manager %q has run before; make a new one", m.o.Name)
	}
	m.ran, m.fail = true, fail
	if m.log == nil {
		m.log = logr.FromContextAsSlogLogger(ctx)
	}
	wrong, controllers := slices.Clone(m.wrong), slices.Clone(m.controllers)
	m.mu.Unlock()
	wrong = append(wrong, m.cache.Validate(), m.validateNames())
	for _, c := range controllers {
		wrong = append(wrong, c.Validate())
	}
	err := errors.Join(wrong...)
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "\n"):
		return fmt.Errorf("the manager %q cannot run:\n%w", m.o.Name, err)
	default:
		return fmt.Errorf("the manager %q cannot run: %w", m.o.Name, err)
	}
}

// cacheHooks logs informers that wait, fail or recover.
func (m *Manager) cacheHooks() *hook.Cache {
	return &hook.Cache{
		InformerState: func(s hook.InformerState) {
			log := m.logger().With("kind", s.Kind)
			if s.Scope != "" {
				log = log.With("scope", s.Scope)
			}
			switch {
			case apierrors.IsTooManyRequests(s.Err): // also of a CRD that was installed a moment ago
				log.Info("the API server asks an informer to wait", "err", s.Err)
			case s.Err != nil:
				log.Warn("an informer is "+string(s.Phase), "err", s.Err)
			default:
				log.Info("an informer is well again")
			}
		},
		BrokenObject: func(kind, object string, err error) {
			m.logger().Warn("an object is broken; all others are kept up to date", "kind", kind, "object", object, "err", err)
		},
	}
}

// clientHooks logs, once for each resource, that something is written without a term of leadership, if there are terms.
func (m *Manager) clientHooks() *hook.Client {
	if m.o.LeaderElection == nil {
		return &hook.Client{Unattributed: m.tellUnattributed()}
	}
	var told sync.Map // of schema.GroupResource; there are as many as the program writes
	return &hook.Client{Unattributed: m.tellUnattributed(), Unfenced: func(r hook.APIRequest) {
		resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
		if _, before := told.LoadOrStore(resource, true); !before {
			m.logger().Warn("a write without a term of leadership: if this replica loses the lease, it is not held back; "+
				"make it with the context of the Reconcile, or with client.WithoutTerm", "resource", resource.String(), "verb", r.Verb)
		}
	}}
}
