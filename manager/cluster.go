// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
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
)

// Cluster is a further cluster of a process, with a client and a cache of its own.
// [Manager.Cluster] makes one. All methods are safe for concurrent use.
//
// A controller may watch, read and write several clusters:
//
//   - Its sources and handles count for the controller like all others: for Ready, the health
//     checks, Idle and Reads. If a cluster cannot be reached, the others continue.
//   - A write to any cluster passes the fence under the manager's term. The key's next Reconcile
//     waits until the caches of that cluster show the write.
//   - Log lines and errors of its cache, and check results, name the cluster. Errors of its client
//     do not. Metrics of informers are sums over all clusters.
//
// Two clusters may have objects of the same name. If a controller must not reconcile both as one
// key, use [github.com/setpoint-dev/setpoint/handler.ClusterKey].
type Cluster struct {
	name    string
	client  *client.Client
	cache   *cache.Cache
	running *phase
}

type clusters struct {
	launcher[*Cluster]

	own   *cache.Cache // the manager's
	hooks *hook.Cache
}

// Cluster makes the process use a further cluster, before or during Run. Its client has the
// manager's Scheme, FieldOwner, Strict and Hooks. Its cache has the manager's Options.Cache, and
// starts and stops with the manager's. The name must be unique. Run returns an error for an invalid
// name or cfg.
func (m *Manager) Cluster(name string, cfg *rest.Config) *Cluster {
	c := &Cluster{name: name}
	err := m.dial(c, cfg)
	hooks := hook.Hooks{Cache: cacheHooks(m.report, name)}.With(hook.Hooks{Cache: m.clusters.hooks})
	o := m.o.Cache // the same for the whole process
	o.Hooks, o.Cluster = hooks.Cache, name
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
		m.roster.tooLate(fmt.Sprintf("the cluster %q", name))
	}
	return c
}

func (m *Manager) dial(c *Cluster, cfg *rest.Config) (err error) {
	switch {
	case c.name == "":
		err = errors.New("Cluster: the name is empty; give the cluster a name")
	case strings.ContainsFunc(c.name, unicode.IsControl):
		err = fmt.Errorf("Cluster: %q has a line break or another control character; use printable text", c.name)
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
	return nil
}

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Client returns the cluster's client.
func (c *Cluster) Client() *client.Client { return c.client }

// Cache returns the cluster's cache, which the manager runs.
func (c *Cluster) Cache() *cache.Cache { return c.cache }

func (cs *clusters) add(c *Cluster) error {
	cs.roster.mu.Lock()
	defer cs.roster.mu.Unlock()
	if slices.ContainsFunc(cs.all, func(other *Cluster) bool { return other.name == c.name }) {
		return fmt.Errorf("two clusters are named %q; give each a name of its own", c.name)
	}
	cs.addLocked(c)
	return nil
}

func (cs *clusters) forget(c *Cluster) bool {
	cs.roster.mu.Lock()
	defer cs.roster.mu.Unlock()
	i := slices.Index(cs.all, c)
	if i < 0 {
		return false
	}
	cs.all = slices.Delete(cs.all, i, i+1)
	return true
}

func (cs *clusters) current() []*Cluster {
	cs.roster.mu.Lock()
	defer cs.roster.mu.Unlock()
	return slices.Clone(cs.all)
}

func (cs *clusters) states() []hook.InformerState {
	states := cs.own.States()
	for _, c := range cs.current() {
		states = append(states, c.cache.States()...)
	}
	return states
}

func (cs *clusters) validate() error {
	var wrong []error
	for _, c := range cs.current() {
		if err := c.cache.Validate(); err != nil {
			wrong = append(wrong, fmt.Errorf("the cluster %q: %w", c.name, err))
		}
	}
	return errors.Join(wrong...)
}

func (cs *clusters) disconnect(ctx context.Context) {
	for _, c := range cs.current() {
		c.client.Disconnect(ctx)
	}
}
