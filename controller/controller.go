// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Controller reconciles keys of type K. New and NewWithQueue make one.
type Controller[K comparable] struct {
	name       string
	reconciler Reconciler[K]
	o          Options
	queue      *workqueue.Queue[K]
	run        string        // begins each reconcile ID
	synced     chan struct{} // closed by Warm
	declared   cache.Declarations
	journal    journal[K]
	news       news[K]
	ownEvents  atomic.Int64 // how many did not end a backoff
	clock      clock
	opened     func() // tells QueueHooks of the queue
	slowLines  *fewLines
	errorLog   errorLog
	resolver   resolver
	told       told
	spins      spins[K]
	workers    workers[K]
	pauses     pauses[K]
	levels     levels[K]
	interrupts interrupts[K]
	takingOver atomic.Pointer[string] // what Lead waits for (L9, C6)

	mu      sync.Mutex         // guards what follows
	wrong   []error            // what Validate reports
	watches []*watching[K]     // replaced, never changed
	reads   []Readable         // replaced, never changed
	start   func(*watching[K]) // while Warm runs
	warmed  bool
	former  *past // what a controller of this name left behind, see Inherit
}

// Readable is something that a Reconciler reads. A *cache.Handle is one, and so is every source.
type Readable interface {
	// WaitForSync returns nil once it can be read, or an error when ctx ends before.
	WaitForSync(ctx context.Context) error
	// Settled returns nil once it is synced, or is in trouble that Stale names; and an error when ctx ends before.
	Settled(ctx context.Context) error
	// Stale returns nil while what is read follows the API server, otherwise why it may be old.
	Stale() error
	// String names it.
	String() string
}

// New makes a controller with keys of namespace and name. Its queue has workqueue.ThreeClasses:
// changes get ahead of the initial list and of retries. It starts nothing. The name must be unique
// in a manager: at most 63 letters, digits, '-', '_' and '.', with a letter or digit first and last.
// What is wrong with the arguments is reported by Validate, and so by the manager's Run.
func New(name string, r Reconciler[types.NamespacedName], o Options) *Controller[types.NamespacedName] {
	return NewWithQueue(name, r, o, workqueue.Options[types.NamespacedName]{})
}

// NewWithQueue makes a controller with keys of any type and a queue as q says. q.Name defaults to
// the controller's name, and q.Classes to workqueue.ThreeClasses.
func NewWithQueue[K comparable](name string, r Reconciler[K], o Options, q workqueue.Options[K]) *Controller[K] {
	c := &Controller[K]{name: name, reconciler: r, o: o.withDefaults(), run: fmt.Sprintf("%08x", rand.Uint32()), synced: make(chan struct{})}
	c.slowLines = newFewLines()
	c.clock = newClock(c.o.Deadline > 0 || c.o.SlowAfter < 0 || c.o.Hooks.Reconciled != nil)
	c.workers.want = c.o.Workers
	if q.Name == "" {
		q.Name = name
	}
	if q.Classes == nil {
		q.Classes = workqueue.ThreeClasses()
	}
	q.Hooks = q.Hooks.With(c.queueHooks())
	var err error
	c.queue, err = workqueue.New(c.withOwnEvents(q))
	if err != nil {
		c.complain(err)
		c.queue, _ = workqueue.New(workqueue.Options[K]{}) // so that Queue is never nil; Run refuses
	}
	c.declareLocked() // nobody else has it yet
	c.complain(o.Validate())
	c.complain(checkName(name))
	if argument.IsNil(r) {
		c.complain(errors.New("the reconciler is nil; give New one that was made"))
	}
	return c
}

func (c *Controller[K]) complain(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, err)
}

// Name returns the controller's name.
func (c *Controller[K]) Name() string { return c.name }

// Queue returns the controller's queue, for a look at it and to make keys due from elsewhere. It must not be taken from.
func (c *Controller[K]) Queue() *workqueue.Queue[K] { return c.queue }

// Reads declares what Reconcile reads without watching it: workers start when it is settled, too, and Stale looks at it. A handle
// that is neither watched nor declared cannot be read in a Reconcile: it would be a watch that nobody sees. Call it before the
// start.
func (c *Controller[K]) Reads(r ...Readable) {
	if slices.ContainsFunc(r, func(r Readable) bool { return argument.IsNil(r) }) {
		c.complain(errors.New("Reads was given nothing to read"))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = append(slices.Clip(c.reads), r...)
	c.declareLocked()
}

// declareLocked allows Reconcile to read what is watched and what was given to Reads.
func (c *Controller[K]) declareLocked() {
	var of []cache.Declared
	for _, w := range c.watches {
		if k, ok := w.source.(interface{ Handle() cache.Declared }); ok {
			of = append(of, k.Handle())
		}
	}
	for _, r := range c.reads {
		if d, ok := r.(cache.Declared); ok {
			of = append(of, d)
		}
	}
	c.declared.Set(fmt.Sprintf("the controller %q", c.name), of...)
}

// checkName returns an error that states the rule for names. A name becomes a metric's label, an
// attribute of log lines and a part of a user agent.
func checkName(name string) error {
	if name == "" {
		return errors.New("give it a name")
	}
	if wrong := content.IsLabelValue(name); len(wrong) > 0 {
		return errors.New("the name is not valid; use at most 63 letters, digits, '-', '_' and '.', with a letter or digit first and last")
	}
	return nil
}

// Validate returns an error that names everything that is wrong with how the controller was put together, one line each.
func (c *Controller[K]) Validate() error {
	c.mu.Lock()
	wrong, watches := slices.Clone(c.wrong), c.watches
	c.mu.Unlock()
	for _, w := range watches {
		wrong = append(wrong, named(w.source, w.source.Validate()))
	}
	var all []error
	for _, err := range wrong {
		all = append(all, c.named(err)...)
	}
	return errors.Join(all...)
}

// named returns the errors that err is made of, each with the controller's name.
func (c *Controller[K]) named(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{fmt.Errorf("controller %q: %w", c.name, err)}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, c.named(err)...)
	}
	return all
}

// Synced is closed when the controller could lead: when every source and everything that it Reads is synced, or in trouble that
// it names (S9). It stays closed.
func (c *Controller[K]) Synced() <-chan struct{} { return c.synced }

// Run warms and leads at once, until ctx is done: for a controller without a manager. It leads under the term of leadership that ctx
// carries, if there is one (client.WithTerm, leaderelection.Observe); else the log and the snapshot say that there is none. Whoever runs the cache must keep it
// running until Run has returned. Running Reconciles may go on for Options.Grace after ctx is done, then their context is
// cancelled. Run returns when everything that it started has.
func (c *Controller[K]) Run(ctx context.Context) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.claim(); err != nil {
		return errors.Join(c.named(err)...)
	}
	warm, cool := context.WithCancel(context.WithoutCancel(ctx))
	defer cool()
	take, stop := context.WithCancel(ctx)
	defer stop()
	warmed := make(chan error, 1)
	go func() {
		err := c.warm(warm)
		stop()
		warmed <- err
	}()
	work, cancel := run.WithGrace(take, context.WithoutCancel(take), c.o.Grace)
	defer cancel()
	if client.TermOf(ctx) == nil {
		c.logger(ctx).Info("leading without a term of leadership: nothing keeps another process from acting at the same time")
	}
	err := c.Lead(take, work)
	cool()
	return errors.Join(c.named(errors.Join(err, <-warmed))...)
}
