// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/hook"
)

// Options configures New. The zero value works.
type Options struct {
	// Hooks observes the informers. Default: nobody does.
	Hooks *hook.Cache
}

// Cache owns informers, one for each scope that a handle was made for.
type Cache struct {
	*environment

	// The environment's mutex guards what follows.
	informers map[key]*informer
	broken    []error         // what For could not make a handle of
	start     func(*informer) // while Run runs; nil before and after
	join      func(func())    // runs a function that Run joins; nil before and after
	ran       bool

	serial atomic.Int64           // makes the names of indexes and marks unique
	server atomic.Pointer[string] // what host has found
}

// New makes a cache. It starts nothing and makes no request. Without a Backend (nil) it is for informers that list and watch by
// themselves: those of Adopt, and of package cache/factory.
func New(b Backend, o Options) *Cache {
	c := &Cache{environment: &environment{backend: b}, informers: map[key]*informer{}}
	if o.Hooks != nil {
		c.hooks = *o.Hooks
	}
	return c
}

// Validate returns an error that names every type that a handle was asked for and that cannot be cached.
func (c *Cache) Validate() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.broken...)
}

// Run starts the informers, those that are declared later included, and blocks until ctx is done and each of their
// goroutines has returned. A cache runs once.
func (c *Cache) Run(ctx context.Context) error {
	var informers, others sync.WaitGroup
	start := func(i *informer) {
		own, cancel := context.WithCancel(ctx)
		i.cancel = cancel
		informers.Go(func() { i.follow(own) })
	}
	if err := c.begin(start, others.Go); err != nil {
		return err
	}
	if c.hooks.Started != nil {
		c.hooks.Started(hook.CacheStarted{Of: c, Informers: c.counted})
	}
	if c.hooks.Stopped != nil {
		defer c.hooks.Stopped(hook.CacheStopped{Of: c})
	}
	<-ctx.Done()
	c.open(nil, others.Go)
	informers.Wait()
	c.open(nil, nil) // not before: an informer waits for its callbacks, and one may change a Set
	others.Wait()
	return nil
}

func (c *Cache) begin(start func(*informer), join func(func())) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ran {
		return errors.New("this cache has run before; make a new one")
	}
	c.ran, c.start, c.join = true, start, join
	for _, i := range c.informers {
		start(i)
	}
	return nil
}

// open sets what may begin from now on.
func (c *Cache) open(start func(*informer), join func(func())) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start, c.join = start, join
}

// acquire returns the one informer of a key, and starts it if the cache is running. It must be released.
func (c *Cache) acquire(k key, inform func(key) *informer) *informer {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.informers[k]
	if i == nil {
		i = inform(k)
		c.informers[k] = i
		switch {
		case c.start != nil:
			c.start(i)
		case c.ran:
			i.tooLate()
		}
	}
	i.refs++
	return i
}

// release gives an informer back. The last one stops it (S6).
func (c *Cache) release(i *informer) {
	unattended := c.forget(i)
	c.ring()
	if unattended {
		i.copy.End(true)
	}
}

// forget says whether it was the last one to let go of an informer that nobody runs or attends to.
func (c *Cache) forget(i *informer) (unattended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.refs--
	if i.refs > 0 {
		return false
	}
	delete(c.informers, i.key)
	if i.cancel != nil {
		i.cancel()
	}
	return i.cancel == nil
}

// later runs f on a goroutine that Run joins, or at once if Run does not run: then no informer does, nor a callback of one.
func (c *Cache) later(f func()) {
	if !c.joined(f) {
		f()
	}
}

func (c *Cache) joined(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.join == nil {
		return false
	}
	c.join(f)
	return true
}

// Changed returns a channel that is closed when the state of an informer changes next. Take the channel, look at the states,
// then wait for it.
func (c *Cache) Changed() <-chan struct{} { return c.changed() }

// Reject records a mistake in the wiring, which Validate and the manager's Run return.
func (c *Cache) Reject(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, err)
}

// Scheme returns the scheme of the Backend, or nil if there is none.
func (c *Cache) Scheme() *runtime.Scheme {
	if c.backend == nil {
		return nil
	}
	return c.backend.Scheme()
}

// States returns where each informer stands, in no particular order. It counts the objects of each and
// estimates their size, which costs a walk over them.
func (c *Cache) States() []hook.InformerState { return c.states((*informer).size) }

// counted is States without the sizes, for hook.CacheStarted.
func (c *Cache) counted() []hook.InformerState {
	return c.states(func(i *informer) (int, int64) { return len(i.store().ListKeys()), 0 })
}

func (c *Cache) states(size func(*informer) (int, int64)) []hook.InformerState {
	states := []hook.InformerState{}
	for _, i := range c.all() {
		s := i.state()
		s.Objects, s.Bytes = size(i)
		states = append(states, s)
	}
	return states
}

func (c *Cache) all() []*informer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.informers))
}

// host returns scheme://host of the API server, or "" if it is not known.
func (c *Cache) host() string {
	if known := c.server.Load(); known != nil {
		return *known
	}
	host := hostOf(c.backend)
	c.server.Store(&host)
	return host
}

// selects reports whether an informer for a resource has selectors.
func (c *Cache) selects(r schema.GroupResource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, i := range c.informers {
		if k.selects() && i.copy.Serves(r) {
			return true
		}
	}
	return false
}
