// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/hook"
)

// Cache owns the informers of all declared scopes.
type Cache struct {
	*environment

	options Options
	// The environment's mutex guards the fields below.
	broken []error         // mistakes in declarations
	start  func(*informer) // set while Run runs
	join   func(func())    // runs a function that Run joins; set while Run runs
	ran    bool

	cluster string                // of Options
	retired atomic.Pointer[error] // of Retire

	serial atomic.Int64           // for names of indexes and marks
	server atomic.Pointer[string] // the result of host
}

// New returns a cache. Without a Backend (nil), it can only use informers that list and watch by
// themselves, from Adopt or package cache/factory.
func New(b Backend, o Options) *Cache {
	e := &environment{backend: b, quietLimit: o.QuietLimit, hook: o.Hook, informers: map[key]*informer{}}
	return &Cache{environment: e, options: o, cluster: o.Cluster}
}

// Options returns New's options.
func (c *Cache) Options() Options { return c.options }

// Validate returns an error that names every mistake in the Options and the declarations, and the
// errors given to Reject.
func (c *Cache) Validate() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(append([]error{c.options.Validate()}, c.broken...)...)
}

// Run starts the informers, also those declared later. It returns nil when ctx is done and all
// goroutines have returned. It returns an error at once if the Options are invalid, and at a second
// call.
func (c *Cache) Run(ctx context.Context) error {
	if err := c.options.Validate(); err != nil {
		return err
	}
	var informers, others sync.WaitGroup
	start := func(i *informer) {
		own, cancel := context.WithCancel(ctx)
		i.cancel = cancel
		informers.Go(func() { i.follow(own) })
	}
	if err := c.begin(start, others.Go); err != nil {
		return err
	}
	c.hook.Send(&hook.CacheStarted{Of: c, Informers: c.counted})
	defer c.hook.Send(&hook.CacheStopped{Of: c})
	<-ctx.Done()
	c.open(nil, others.Go)
	informers.Wait()
	c.open(nil, nil) // not before: callbacks may change a Set, and informers wait for callbacks
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

func (c *Cache) open(start func(*informer), join func(func())) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start, c.join = start, join
}

// acquire returns the informer of a key, to be released, and starts it if the cache is running.
// fixed is for informer.fixed.
func (c *Cache) acquire(k key, inform func(key) *informer, fixed bool) *informer {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.informers[k]
	made := i == nil
	if made {
		i = inform(k)
		c.informers[k] = i
	}
	if fixed {
		i.fixed.Store(true) // before it starts: its first request depends on it
	}
	if made {
		switch {
		case c.start != nil:
			c.start(i)
		case c.ran:
			i.phase = hook.Stopped // not shared yet
			close(i.stopped)
		}
	}
	i.refs++
	return i
}

func (c *Cache) release(i *informer) {
	unattended := c.forget(i)
	c.ring()
	if unattended {
		i.view.End(true)
	}
}

func (c *Cache) forget(i *informer) (unattended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.refs--
	if i.refs > 0 {
		return false
	}
	delete(c.informers, i.key)
	if s := i.key.slots; s != nil {
		s.leave(i)
	}
	if i.cancel != nil {
		i.cancel()
	}
	return i.cancel == nil
}

// later runs f on a goroutine that Run joins. If Run does not run, no informer and no callback
// runs, and later calls f.
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

// Reject records a wiring mistake, which Validate and the manager's Run return.
func (c *Cache) Reject(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, err)
}

// Retire makes every later use of the cache's handles return why. A manager calls it for a removed
// cluster, before it ends Run.
func (c *Cache) Retire(why error) { c.retired.Store(&why) }

// Scheme returns the Backend's scheme, or nil without a Backend.
func (c *Cache) Scheme() *runtime.Scheme {
	if c.backend == nil {
		return nil
	}
	return c.backend.Scheme()
}

// States returns the state of each informer, in no particular order. It walks over all objects to
// count them, and estimates their size from a sample.
func (c *Cache) States() []hook.InformerState {
	return c.states(func(i *informer) (int, int64) { return size(i.Store()) })
}

func (c *Cache) counted() []hook.InformerState {
	return c.states(func(i *informer) (int, int64) { return i.walked.recent(i.Store(), i.key.records()) })
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

func (c *Cache) host() string {
	if known := c.server.Load(); known != nil {
		return *known
	}
	host := hostOf(c.backend)
	c.server.Store(&host)
	return host
}

func (c *Cache) selects(r schema.GroupResource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, i := range c.informers {
		if k.selectsByObject() && i.view.Serves(r) {
			return true
		}
	}
	return false
}
