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
	"sync/atomic"
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
	repetition repetition    // of log lines
	warmed     atomic.Bool

	inputs      inputs[K]
	records     records[K]
	workers     workers[K]
	consistency consistency[K]
	own         ownEvents[K]
	spins       spins[K]
	pauses      pauses[K]
	interrupts  interrupts[K]
}

// New makes a controller with keys of namespace and name. Its queue has workqueue.ThreeClasses:
// changes get ahead of the initial list and of retries. It starts nothing. The name must be unique
// in a manager: at most 63 letters, digits, '-', '_' and '.', with a letter or digit first and last.
// Validate reports what is wrong with the arguments, and so does the manager's Run.
func New(name string, r Reconciler[types.NamespacedName], o Options) *Controller[types.NamespacedName] {
	return NewWithQueue(name, r, o, workqueue.Options[types.NamespacedName]{})
}

// NewWithQueue makes a controller with keys of any type. q.Name defaults to the controller's name,
// and q.Classes to workqueue.ThreeClasses.
func NewWithQueue[K comparable](name string, r Reconciler[K], o Options, q workqueue.Options[K]) *Controller[K] {
	c := &Controller[K]{
		name: name, reconciler: r, o: o.withDefaults(), run: fmt.Sprintf("%08x", rand.Uint32()),
		synced: make(chan struct{}), began: time.Now(),
	}
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
		c.queue, _ = workqueue.New(workqueue.Options[K]{}) // so that Queue is never nil; Run refuses
	}
	c.consistency = consistency[K]{
		name: name, bound: c.o.ReadYourWrites, hooks: c.o.Hooks, logger: c.logger,
		declared: &c.inputs.declared, stale: c.inputs.stale, queue: c.queue, records: &c.records,
	}
	c.spins = spins[K]{own: &c.own, records: &c.records, queue: c.queue, now: c.now, log: &c.repetition}
	c.pauses = pauses[K]{records: &c.records, queue: c.queue}
	c.interrupts = interrupts[K]{most: c.o.Interrupt, queue: c.queue, workers: &c.workers, records: &c.records}
	c.inputs.declareLocked() // nothing yet
	c.inputs.wrong = []error{err, o.validate(), checkName(name)}
	if argument.IsNil(r) {
		c.inputs.complain("the reconciler is nil; give New one that was made")
	}
	return c
}

// now is the time since the controller was made.
func (c *Controller[K]) now() time.Duration { return time.Since(c.began) }

// Name returns the controller's name.
func (c *Controller[K]) Name() string { return c.name }

// Queue returns the queue, to make keys due from elsewhere than a source and to look at them.
func (c *Controller[K]) Queue() workqueue.Adder[K] { return c.queue }

// Watch adds a source, at any time until Warm ends. Workers start when the sources that were added
// before are settled. If a source that is added later cannot start, Warm ends with its error.
func (c *Controller[K]) Watch(s source.Source[K]) {
	if s == nil {
		c.inputs.complain("Watch was given no source")
		return
	}
	c.inputs.watch(s)
}

// Unwatch stops a source that Watch was given, waits until it has returned, and forgets it. Keys that
// it made due stay due. It returns the source's error, or one if the source still runs when ctx ends.
// A Reconcile may call it, but not a handler, a predicate or a poll of the source itself.
func (c *Controller[K]) Unwatch(ctx context.Context, s source.Source[K]) error {
	w, running := c.inputs.unwatch(s)
	switch {
	case w == nil:
		return c.named(fmt.Errorf("%v is not watched", s))
	case !running:
		return nil
	}
	w.stop()
	select {
	case <-w.ended:
		return c.named(w.err)
	case <-ctx.Done():
		return c.named(fmt.Errorf("%s has not stopped yet: %w", s, context.Cause(ctx)))
	}
}

// Reads declares what Reconcile reads without watching it. Workers start when it is settled, and
// Stale looks at it. A Reconcile can read only handles that are watched or declared: others would be
// watches that the program does not know of. Call it before the start.
func (c *Controller[K]) Reads(r ...Readable) {
	if slices.ContainsFunc(r, func(r Readable) bool { return argument.IsNil(r) }) {
		c.inputs.complain("Reads was given nothing to read")
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

// Validate returns an error that names everything that is wrong with the controller, one line each.
func (c *Controller[K]) Validate() error { return c.named(c.inputs.validate()) }

// named returns err with the controller's name before each of the errors that it joins.
func (c *Controller[K]) named(err error) error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("controller %q: %w", c.name, err)
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, c.named(err))
	}
	return errors.Join(all...)
}

// Synced is closed when the controller could lead: when every source and everything that it Reads is
// synced, or in trouble that it names (S9). It stays closed.
func (c *Controller[K]) Synced() <-chan struct{} { return c.synced }

// Unshown returns the writes of the last Reconcile of each key that the caches do not show yet. A
// manager gives them to the next controller of the same name, see Inherit. It returns the most when
// all Reconciles have returned.
func (c *Controller[K]) Unshown() []ledger.Write { return c.consistency.unshown() }

// Inherit makes the first Reconcile wait until the caches show these writes of a controller of the
// same name, for at most Options.ReadYourWrites (C6). A manager calls it when a controller replaces
// another. Call it once, before Lead.
func (c *Controller[K]) Inherit(writes []ledger.Write) { c.consistency.inherit(writes) }

// Pause stops the controller from reconciling until Resume, also in later terms. Running Reconciles
// go on to their end, and keys go on becoming due.
func (c *Controller[K]) Pause() { c.queue.PauseAll() }

// Resume ends Pause. Keys that are paused one by one stay paused.
func (c *Controller[K]) Resume() {
	if c.queue.Len().AllPaused {
		c.workers.resume(c.now())
		c.queue.ResumeAll()
	}
}

// PauseKey stops the controller from reconciling a key until ResumeKey, whether there is such a key
// yet or not. A running Reconcile goes on to its end. The key keeps what it is due for meanwhile.
func (c *Controller[K]) PauseKey(key K) { c.pauses.set(key, pauser{text: "PauseKey"}, true) }

// ResumeKey ends PauseKey. A key that is also paused by [PausedAnnotation] stays paused.
func (c *Controller[K]) ResumeKey(key K) { c.pauses.set(key, pauser{text: "PauseKey"}, false) }

// Requeue makes a key due at once, whatever its backoff. It goes on waiting for its own writes (C6).
// A key in progress is reconciled once more, a paused one when it is resumed.
func (c *Controller[K]) Requeue(key K) { c.queue.RequeueNow(key, workqueue.Reason{}) }

// SetLogLevel sets the level at which the Reconciles of one key log that begin from now on, until
// ResetLogLevel. The logger's handler must check levels in its Enabled method only, as those of
// log/slog do.
func (c *Controller[K]) SetLogLevel(key K, level slog.Level) {
	c.records.edit(key, func(r *record[K]) { r.level = &level })
}

// ResetLogLevel ends SetLogLevel.
func (c *Controller[K]) ResetLogLevel(key K) {
	c.records.edit(key, func(r *record[K]) { r.level = nil })
}

// SetWorkers changes how many Reconciles run at once: before the controller leads, while it does, and
// between terms. More start at once. Surplus workers end when their Reconcile has returned. The
// number stays for later terms. It must be at least 1: to stop all work, use Pause.
func (c *Controller[K]) SetWorkers(n int) error {
	if n < 1 {
		return fmt.Errorf("controller %q: %d workers: there must be at least 1; to have none work, use Pause", c.name, n)
	}
	c.workers.set(n)
	return nil
}

// queueHooks are Options.QueueHooks. They are told of the queue by Warm, which also closes it.
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
