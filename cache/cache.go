// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/hook"
)

// Backend is what a cache lists and watches with. A *client.Client is one.
type Backend interface {
	// Scheme knows the Go types of the kinds.
	Scheme() *runtime.Scheme
	// Mapping says as which resource a kind is served. For a kind that is not served it returns an error for which
	// meta.IsNoMatchError is true, and asks again at the next call.
	Mapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error)
	// RESTClient returns a client for requests about a kind.
	RESTClient(gvk schema.GroupVersionKind) (rest.Interface, error)
	// Forget drops what Mapping knows of a kind: the API server answered 404.
	Forget(gvk schema.GroupVersionKind)
}

// Options configures New. The zero value works.
type Options struct {
	// Hooks observes the informers. Default: nobody does.
	Hooks *hook.Cache
}

// Cache owns informers, one for each kind that a handle was made for.
type Cache struct {
	backend Backend
	hooks   *hook.Cache

	mu        sync.Mutex // guards what follows
	informers map[schema.GroupVersionKind]*informer
	broken    []error         // what For could not make a handle of
	start     func(*informer) // while Run runs; nil before and after
	ran       bool
}

// New makes a cache. It starts nothing and makes no request.
func New(b Backend, o Options) *Cache {
	return &Cache{backend: b, hooks: o.Hooks, informers: map[schema.GroupVersionKind]*informer{}}
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
	var running sync.WaitGroup
	if err := c.open(func(i *informer) { running.Go(func() { i.run(ctx) }) }); err != nil {
		return err
	}
	<-ctx.Done()
	c.close()
	running.Wait()
	return nil
}

func (c *Cache) open(start func(*informer)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ran {
		return errors.New("this cache has run before; make a new one")
	}
	c.ran, c.start = true, start
	for _, i := range c.informers {
		start(i)
	}
	return nil
}

func (c *Cache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = nil
}

// informerFor returns the one informer of a kind, and starts it if the cache is running.
func (c *Cache) informerFor(gvk schema.GroupVersionKind, example Object) *informer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.informers[gvk]; i != nil {
		return i
	}
	i := newInformer(c.backend, c.hooks, gvk, example)
	c.informers[gvk] = i
	if c.start != nil {
		c.start(i)
	}
	return i
}

func (c *Cache) reject(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, err)
	return err
}

// States returns where each informer stands, in no particular order.
func (c *Cache) States() []hook.InformerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	states := make([]hook.InformerState, 0, len(c.informers))
	for _, i := range c.informers {
		states = append(states, i.state())
	}
	return states
}

// String counts the informers.
func (c *Cache) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("cache of %d kinds", len(c.informers))
}
