// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// Manager runs the cache, leader election, controllers and functions of one process.
type Manager struct {
	o        Options
	report   *report
	registry *registry
	client   *client.Client
	cache    *cache.Cache
	leases   *leases
	main     *Lease // of Options.LeaderElection
	free     *Lease // of AddControllerEverywhere
	clusters *clusters
	probes   *probes
	servers  []Server // guarded by the registry's lock until Run
	ended    chan struct{}
	result   error // of Run, when ended is closed

	reviews   run.Calls     // of rights
	reviewing chan struct{} // has an element while one of reviews goes on
}

// New makes a manager for the API server of cfg, which it copies. It starts nothing and makes no
// request. Run reports invalid arguments.
func New(cfg *rest.Config, o Options) *Manager {
	o = o.withDefaults()
	m := &Manager{o: o, ended: make(chan struct{}), reviewing: make(chan struct{}, 1), report: &report{manager: o.Name, log: o.Logger}}
	m.reviews.Of = "the reviews of rights"
	m.report.failed(o.Validate())
	m.registry = newRegistry(&m.o, m.report)
	if o.Metrics != nil && !argument.IsNil(o.Metrics) {
		o.Hook = hook.Join(o.Metrics.Hook(), o.Hook)
	}
	m.clusters = &clusters{starter: starter[*Cluster]{mu: &m.registry.mu}, hook: hook.Join(o.Hook, o.Cache.Hook)}
	m.o.Hook = hook.Join(cacheHook(m.report, ""), clientHook(m.registry), o.Hook)
	m.connect(cfg)
	m.o.Cache.Hook = hook.Join(m.o.Hook, o.Cache.Hook)
	m.cache = cache.New(m.client, m.o.Cache)
	m.clusters.own = m.cache
	m.leases = &leases{starter: starter[*Lease]{mu: &m.registry.mu}, manager: m}
	main := o.LeaderElection
	if main != nil && validateCoordinator("", main) != nil { // already reported by o.Validate
		main = nil
	}
	var err error
	m.main, err = m.leases.add(main)
	m.report.failed(err)
	m.free = m.leases.addFree()
	m.probes = newProbes(m.registry, m.leases, m.clusters.states)
	return m
}

// Slots returns the slots of this replica, for [cache.Scope].Slots of handles whose objects follow
// the keys. A handle without it keeps all objects on every replica, so its keys move faster.
// Without a Group, Slots returns nil, which selects everything.
func (m *Manager) Slots() *cache.Slots {
	if e, ok := m.main.leadership.(*elected); ok {
		return e.host.slotCache
	}
	return nil
}

// Group returns the group of Options.LeaderElection, for package debug. A *shard.Group has more. It
// returns nil if one replica leads, or all do.
func (m *Manager) Group() Group {
	if e, ok := m.main.leadership.(*elected); ok {
		return e.members
	}
	return nil
}

// connect makes the client.
func (m *Manager) connect(cfg *rest.Config) {
	if cfg == nil {
		m.report.failed(errors.New("the rest.Config is nil; client.LoadConfig finds one"))
		cfg = &rest.Config{}
	}
	var err error
	m.client, err = m.newClient(cfg)
	if err != nil {
		m.report.failed(err)
		// for handles only; Run returns the error
		m.client, _ = client.New(&rest.Config{}, client.Options{Scheme: m.o.Scheme})
	}
}

func (m *Manager) newClient(cfg *rest.Config) (*client.Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = cmp.Or(cfg.UserAgent, m.o.Name+" "+rest.DefaultKubernetesUserAgent())
	return client.New(cfg, client.Options{
		Scheme: m.o.Scheme, FieldOwner: m.o.FieldOwner, Hook: m.o.Hook, RequireTerm: m.o.RequireTerm,
	})
}

// Add adds a controller, which leads while the process holds the Lease of Options.LeaderElection,
// or on every replica without leader election. In a Group, every replica reconciles the keys of
// the slots that it owns.
//
// A controller added during Run starts at once. After Run, the call only logs a warning. Run
// returns an error if the controller is invalid or fails, or if its name is taken.
func (m *Manager) Add(c Controller) { m.main.Add(c) }

// AddLeaderOnly adds a function that runs once in each term of the Lease of Options.LeaderElection,
// or once without leader election. It should return when its context is done; context.Cause returns
// the reason. Otherwise the rules of AddEverywhere apply. In a Group no replica leads, and the call
// is an error: add the function to a Lease of its own (see AddLease).
func (m *Manager) AddLeaderOnly(name string, run func(ctx context.Context) error) {
	m.main.AddLeaderOnly(name, run)
}

// AddEverywhere adds a function that runs on every replica, leader or not, until its context is
// done or it returns. An error or panic ends Run. During Run it starts at once. The name appears in
// errors, logs and profiles, and must not be empty.
func (m *Manager) AddEverywhere(name string, run func(ctx context.Context) error) {
	m.registry.everywhere.addFunc("AddEverywhere", name, run)
}

// AddControllerEverywhere adds a controller that leads on every replica at once, leader or not. It
// is for work on a replica's own resources, such as files or connections. Otherwise the rules of
// Add apply.
//
// Its Reconciles have no term of leadership (term.Without), so the fence and Options.RequireTerm
// let their writes pass. Several replicas write at the same time: give their writes a
// resourceVersion, or make them equal.
func (m *Manager) AddControllerEverywhere(c Controller) { m.free.Add(c) }

// AddLease makes the process campaign for a further Lease, before or during Run. Different replicas
// may hold the Leases. The campaign begins when the Lease has a controller or function, and its
// controllers are warm.
//
// Identity defaults to the Identity of the process's first Lease. Run returns an error for invalid
// options, and for a name that another Lease has, even in another namespace.
func (m *Manager) AddLease(c Coordinator) *Lease {
	if err := validateCoordinator("its Coordinator", c); err != nil {
		m.report.failed(fmt.Errorf("AddLease: %w", err))
		return &Lease{group: newGroup(m.registry)}
	}
	l, err := m.leases.add(c)
	m.report.failed(err)
	return l
}

// AddCluster makes the process use a further cluster, before or during Run. Its client has the
// manager's Scheme, FieldOwner, RequireTerm and Hook. Its cache has the manager's Options.Cache,
// and starts and stops with the manager's. The name must be unique. Run returns an error for an
// invalid name or cfg.
func (m *Manager) AddCluster(name string, cfg *rest.Config) *Cluster {
	c := &Cluster{name: name}
	err := m.dial(c, cfg)
	o := m.o.Cache // the same for the whole process
	o.Hook, o.Cluster = hook.Join(cacheHook(m.report, name), m.clusters.hook), name
	c.cache = cache.New(c.client, o)
	c.running = newPhase(func(ctx, _ context.Context) error {
		defer c.client.Close()
		return c.cache.Run(ctx)
	})
	if err == nil {
		err = m.clusters.add(c)
	}
	if err != nil {
		m.report.failed(err)
	} else {
		m.registry.tooLate(fmt.Sprintf("the cluster %q", name))
	}
	return c
}

func (m *Manager) dial(c *Cluster, cfg *rest.Config) (err error) {
	switch {
	case c.name == "":
		err = errors.New("AddCluster: the name is empty; give the cluster a name")
	case strings.ContainsFunc(c.name, unicode.IsControl):
		err = fmt.Errorf("AddCluster: %q has a line break or another control character; use printable text", c.name)
	case cfg == nil:
		err = fmt.Errorf("the cluster %q: the rest.Config is nil; client.LoadConfig finds one", c.name)
	default:
		if c.client, err = m.newClient(cfg); err != nil {
			err = fmt.Errorf("the cluster %q: %w", c.name, err)
		}
	}
	if err != nil {
		c.client, _ = client.New(&rest.Config{}, client.Options{Scheme: m.o.Scheme})
	}
	return err
}

// RemoveCluster removes a cluster, before or during Run. Later uses of its handles return an error
// that names it. RemoveCluster returns nil when the informers have stopped and the idle connections
// are closed; the name is then free. If ctx ends earlier, it returns an error and the stop
// continues.
//
// First remove the controllers that read the cluster, or Unwatch its sources. Otherwise
// RemoveCluster returns an error that names them, and the cluster stays.
func (m *Manager) RemoveCluster(ctx context.Context, c *Cluster) error {
	if c == nil {
		return errors.New("RemoveCluster: the cluster is nil")
	}
	if users := c.cache.DeclaredBy(); len(users) > 0 {
		return fmt.Errorf("the cluster %q is in use by %s; remove that first, or Unwatch the sources of the cluster", c.name, strings.Join(users, ", "))
	}
	if !m.clusters.forget(c) {
		return fmt.Errorf("no cluster %q was added", c.name)
	}
	c.cache.Retire(fmt.Errorf("the cluster %q was removed", c.name))
	if err := c.running.stop(ctx); err != nil {
		return fmt.Errorf("the cluster %q: %w", c.name, err)
	}
	closing, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	c.client.Disconnect(closing)
	c.client.Close()
	return nil
}

// Remove stops a controller, before or during Run. It takes no new key, and its running Reconciles
// have the grace time to finish. When the caches show what they wrote, or after the controller's
// ReadYourWrites, its sources stop: a controller that follows sees the writes of this one. Remove
// returns nil or the controller's error when all of them have returned; the name is then free. An
// error also names a write that the caches did not show in time. If ctx ends earlier, Remove
// returns an error and the stop continues. The controller's own Reconciles must not call Remove,
// which waits for them.
func (m *Manager) Remove(ctx context.Context, c Controller) error { return m.registry.remove(ctx, c) }

// Controllers returns the controllers that were added and not removed, sorted by name, without the
// ones that Options.Controllers disables.
func (m *Manager) Controllers() []Controller {
	var all []Controller
	for _, c := range m.registry.current() {
		all = append(all, c.Controller)
	}
	slices.SortFunc(all, func(a, b Controller) int { return strings.Compare(a.Name(), b.Name()) })
	return all
}

// Informers returns the state of each informer, of all clusters. It counts all objects, and
// estimates their size from a sample.
func (m *Manager) Informers() []hook.InformerState { return m.clusters.states() }

// Cache returns the manager's cache, which Run runs.
func (m *Manager) Cache() *cache.Cache { return m.cache }

// Client returns the manager's client.
func (m *Manager) Client() *client.Client { return m.client }

// Name returns Options.Name.
func (m *Manager) Name() string { return m.o.Name }

// Identity returns the identity of this process in its first Lease, or "" without one.
func (m *Manager) Identity() string { return m.leases.sameIdentity("") }

// Hook returns Options.Hook, joined with the ones of Options.Metrics and of the manager's log.
func (m *Manager) Hook() *hook.Hook { return m.o.Hook }

// Metrics returns Options.Metrics.
func (m *Manager) Metrics() Metrics { return m.o.Metrics }
