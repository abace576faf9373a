// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
)

// Cluster is a further cluster of a process, with a client and a cache of its own.
// [Manager.AddCluster] makes one. All methods are safe for concurrent use.
//
// A controller may watch, read and write several clusters:
//
//   - Its sources and handles count for the controller like all others: for Ready, the health
//     checks, Idle and Reads. If a cluster cannot be reached, the others continue: only its own
//     keys wait for it, and after 3 seconds without an answer its informers are failing.
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
	starter[*Cluster]

	own  *cache.Cache // the manager's
	hook *hook.Hook
}

// Client returns the cluster's client.
func (c *Cluster) Client() *client.Client { return c.client }

// Cache returns the cluster's cache, which the manager runs.
func (c *Cluster) Cache() *cache.Cache { return c.cache }

func (cs *clusters) add(c *Cluster) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if slices.ContainsFunc(cs.all, func(other *Cluster) bool { return other.name == c.name }) {
		return fmt.Errorf("two clusters are named %q; give each a name of its own", c.name)
	}
	cs.addLocked(c)
	return nil
}

func (cs *clusters) forget(c *Cluster) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	i := slices.Index(cs.all, c)
	if i < 0 {
		return false
	}
	cs.all = slices.Delete(cs.all, i, i+1)
	return true
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
