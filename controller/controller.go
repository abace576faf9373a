// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/source"
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
	began      time.Time     // its clock begins
	opened     func()        // tells QueueHooks of the queue
	errorLog   errorLog
	told       told

	inputs      inputs[K]
	records     records[K]
	workers     workers[K]
	consistency consistency[K]
	own         ownEvents[K]
	spins       spins[K]
	pauses      pauses[K]
	interrupts  interrupts[K]
	watchdog    watchdog[K]

	mu     sync.Mutex // guards what follows
	wrong  []error    // what Validate reports
	warmed bool
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
	c := &Controller[K]{name: name, reconciler: r, o: o.withDefaults(), run: fmt.Sprintf("%08x", rand.Uint32()), synced: make(chan struct{}), began: time.Now()}
	c.inputs.name, c.workers.want = name, c.o.Workers
	c.own = ownEvents[K]{declared: &c.inputs.declared, records: &c.records}
	if q.Name == "" {
		q.Name = name
	}
	if q.Classes == nil {
		q.Classes = workqueue.ThreeClasses()
	}
	q.Hooks = q.Hooks.With(c.queueHooks())
	own := q.Own
	q.Own = func(key K, delivery uint64, r workqueue.Reason) bool {
		return c.own.is(key, delivery, r) || own != nil && own(key, delivery, r)
	}
	var err error
	c.queue, err = workqueue.New(q)
	if err != nil {
		c.complain(err)
		c.queue, _ = workqueue.New(workqueue.Options[K]{}) // so that Queue is never nil; Run refuses
	}
	c.assemble()
	c.inputs.read() // nothing yet
	c.complain(o.Validate())
	c.complain(checkName(name))
	if argument.IsNil(r) {
		c.complain(errors.New("the reconciler is nil; give New one that was made"))
	}
	return c
}

// assemble gives each part what it works on.
func (c *Controller[K]) assemble() {
	c.consistency.name, c.consistency.bound, c.consistency.hooks = c.name, c.o.ReadYourWrites, c.o.Hooks
	c.consistency.logger, c.consistency.stale, c.consistency.declared = c.logger, c.inputs.stale, &c.inputs.declared
	c.consistency.queue, c.consistency.records = c.queue, &c.records
	c.spins = spins[K]{own: &c.own, records: &c.records, queue: c.queue, now: c.now, told: &c.told}
	c.pauses = pauses[K]{records: &c.records, queue: c.queue}
	c.interrupts = interrupts[K]{most: c.o.Interrupt, queue: c.queue, workers: &c.workers, records: &c.records}
	c.watchdog = watchdog[K]{name: c.name, run: c.run, o: &c.o, workers: &c.workers, now: c.now, lines: newFewLines()}
}

// now is the time since the controller was made.
func (c *Controller[K]) now() time.Duration { return time.Since(c.began) }

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

// Queue returns the queue, to make keys due from elsewhere than a source and to look at them. It may be
// called at any time.
func (c *Controller[K]) Queue() workqueue.Adder[K] { return c.queue }

// Watch adds a source, at any time until Warm ends. Workers start when the sources that were added before are settled. A source
// that is added later and cannot start ends Warm with its error, as those of the start do.
func (c *Controller[K]) Watch(s source.Source[K]) {
	if s == nil {
		c.complain(errors.New("Watch was given no source"))
		return
	}
	c.inputs.watch(s)
}

// Unwatch stops a source that Watch was given, waits until it has returned, and forgets it: nothing of it is left, but keys that
// it made due stay so. It returns the source's error, if any, or one that says that it still runs when ctx ends before. It may be
// called at any time, also in a Reconcile, but not by a handler, a filter or a poll of the source itself, which it waits for.
func (c *Controller[K]) Unwatch(ctx context.Context, s source.Source[K]) error {
	w, running := c.inputs.unwatch(s)
	switch {
	case w == nil:
		return errors.Join(c.named(fmt.Errorf("%v is not watched", s))...)
	case !running:
		return nil
	}
	w.stop()
	select {
	case <-w.ended:
		return errors.Join(c.named(w.err)...)
	case <-ctx.Done():
		return errors.Join(c.named(fmt.Errorf("%s has not stopped yet: %w", s, context.Cause(ctx)))...)
	}
}

// Sources returns where each source that is watched stands, in the order of Watch. It is for people: counting takes time.
func (c *Controller[K]) Sources() []source.State {
	watches, _ := c.inputs.all()
	states := make([]source.State, 0, len(watches))
	for _, w := range watches {
		states = append(states, w.source.State())
	}
	return states
}

// Reads declares what Reconcile reads without watching it: workers start when it is settled, too, and Stale looks at it. A handle
// that is neither watched nor declared cannot be read in a Reconcile: it would be a watch that nobody sees. Call it before the
// start.
func (c *Controller[K]) Reads(r ...Readable) {
	if slices.ContainsFunc(r, func(r Readable) bool { return argument.IsNil(r) }) {
		c.complain(errors.New("Reads was given nothing to read"))
		return
	}
	c.inputs.read(r...)
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
	wrong := slices.Clone(c.wrong)
	c.mu.Unlock()
	watches, _ := c.inputs.all()
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

// Unshown returns the writes of the last Reconcile of each key that the caches do not show yet. A
// manager gives them to the next controller of the same name, see Inherit. It may be called from
// anywhere, and returns the most when all Reconciles have returned.
func (c *Controller[K]) Unshown() []ledger.Write { return c.consistency.unshown() }

// Inherit makes the first Reconcile wait until the caches show these writes, which a controller of the
// same name has made, for at most Options.ReadYourWrites (C6). A manager calls it when a controller
// is added in place of one that was removed. Call it once, before Lead.
func (c *Controller[K]) Inherit(writes []ledger.Write) { c.consistency.inherit(writes) }

// queueHooks are Options.QueueHooks, which are told of the queue later: when there is something that will close it.
func (c *Controller[K]) queueHooks() *hook.Queue {
	if c.o.QueueHooks == nil || c.o.QueueHooks.Opened == nil {
		return c.o.QueueHooks
	}
	later := *c.o.QueueHooks
	later.Opened = func(e hook.QueueOpened) { c.opened = func() { c.o.QueueHooks.Opened(e) } }
	return &later
}

// logger is the base of every Reconcile's logger.
func (c *Controller[K]) logger(ctx context.Context) *slog.Logger {
	log := c.o.Logger
	if log == nil {
		log = Logger(ctx)
	}
	return log.With("controller", c.name)
}
