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

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Controller reconciles keys of type K. Create it with [New] or [NewWithQueue].
type Controller[K comparable] struct {
	name       string
	reconciler Reconciler[K]
	o          Options              // with the defaults of Default
	q          workqueue.Options[K] // as given: see queueOptions
	current    currentQueue[K]
	queue      *workqueue.Queue[K] // nil before build
	run        string              // of each reconcile ID
	started    chan struct{}       // closed by Warm: workers may start
	stopped    chan struct{}       // closed at the end of Warm
	synced     chan struct{}       // closed by Warm
	began      time.Time           // zero of c.now
	repetition logging.Repetition  // limits the lines of the controller
	failures   logging.Groups      // limits the lines about failed Reconciles
	warmed     atomic.Bool

	inputs      inputs[K]
	records     records[K]
	pool        pool[K]
	consistency visibility[K]
	ownEvents   atomic.Int64 // that did not end a backoff
	pausedAll   atomic.Bool  // see Controller.Pause
	shards      shards[K]
	past        pastRuns[K]
	notes       keyNotes[K]
	traces      traces[K]
}

// New returns a controller of the reconciler's keys: namespaced names, or any comparable type. It
// starts nothing. The name must be unique in a manager: at most 63 letters, digits, '-', '_' and
// '.', with a letter or digit first and last. The queue has workqueue.ThreeClasses, so changes
// precede the initial list and retries. [Controller.Validate] and the manager's Run report wrong
// arguments.
func New[K comparable](name string, r Reconciler[K], o Options) *Controller[K] {
	return NewWithQueue(name, r, o, workqueue.Options[K]{})
}

// NewWithQueue is New with options of the queue. Fields of q take precedence over the same fields
// of Options. q.Name defaults to the controller's name.
func NewWithQueue[K comparable](name string, r Reconciler[K], o Options, q workqueue.Options[K]) *Controller[K] {
	c := &Controller[K]{
		name: name, reconciler: r, o: o, q: q, run: fmt.Sprintf("%08x", rand.Uint32()),
		started: make(chan struct{}), stopped: make(chan struct{}), synced: make(chan struct{}), began: time.Now(),
	}
	c.inputs.name = name
	c.inputs.informers = cache.NewDeclarations()
	c.keepEarly()
	c.consistency = visibility[K]{
		pendingWrites: pendingWrites{name: name, o: &c.o, logger: c.logger, informers: c.inputs.informers, stale: c.inputs.stale},
		records:       &c.records,
	}
	c.shards = shards[K]{queue: &c.current, place: placeOf[K](), report: c.reportUnplaced}
	c.pool.set(o.workers())
	c.inputs.updateInformersLocked()
	c.inputs.wrong = []error{o.validate(), checkName(name)}
	if argument.IsNil(r) {
		c.inputs.complain("the reconciler is nil; pass a Reconciler to New")
	}
	c.apply()
	return c
}

func (c *Controller[K]) now() time.Duration { return time.Since(c.began) }

// Name returns the controller's name.
func (c *Controller[K]) Name() string { return c.name }

// Queue returns the queue, to add keys without a source and to look at them. Adds before Warm are
// kept: once per key, with their reasons. MinInterval counts from Warm. With Options.Partition, an
// add of a key that another process serves has no effect.
func (c *Controller[K]) Queue() workqueue.Adder[K] { return &c.shards }

// Watch adds a source, at any time before Warm ends. Workers start when the sources added before
// Warm are settled. If a later source cannot start, Warm returns its error.
func (c *Controller[K]) Watch(s source.Source[K]) {
	if argument.IsNil(s) {
		c.inputs.complain("Watch: the source is nil; pass a source")
		return
	}
	c.inputs.watch(s)
}

// Unwatch removes a source and waits until it has returned. Its keys stay due. Unwatch returns the
// source's error, or an error if the source is not watched or still runs when ctx ends. A Reconcile
// may call it; the source's own handler, predicates and poll must not.
func (c *Controller[K]) Unwatch(ctx context.Context, s source.Source[K]) error {
	w, running := c.inputs.unwatch(s)
	c.wakeAllHeld() // they may have waited for it
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

// Reads declares handles that Reconcile reads but the controller does not watch. Call it before Run
// or Warm. Workers start when the handles are settled, and [Stale] covers them. With its context, a
// Reconcile can read only watched or declared handles, so that no worker waits for another kind's
// first list. The command setpoint-vet finds reads with another context.
func (c *Controller[K]) Reads(r ...Readable) {
	if slices.ContainsFunc(r, func(r Readable) bool { return argument.IsNil(r) }) {
		c.inputs.complain("Reads: an argument is nil; pass handles")
		return
	}
	c.inputs.read(r...)
}

// Optional exempts handles and sources from Options.RequireKinds: the controller leads although
// their kinds are not served or cannot be read. A handle stands for all sources that watch it. Call
// it before Run or Warm, together with Watch or Reads.
func (c *Controller[K]) Optional(r ...fmt.Stringer) {
	if slices.ContainsFunc(r, func(r fmt.Stringer) bool { return argument.IsNil(r) }) {
		c.inputs.complain("Optional: an argument is nil; pass handles or sources")
		return
	}
	c.inputs.exempt(r...)
}

// checkName checks a name as metric label, log attribute and part of a user agent.
func checkName(name string) error {
	if name == "" {
		return errors.New("the name is empty; give the controller a name")
	}
	if wrong := content.IsLabelValue(name); len(wrong) > 0 {
		return errors.New("the name is not valid; use at most 63 letters, digits, '-', '_' and '.', with a letter or digit first and last")
	}
	return nil
}

// Validate returns an error with one line for each mistake in the setup, or nil.
func (c *Controller[K]) Validate() error {
	_, err := c.queueOptions()
	return c.named(errors.Join(err, c.inputs.validate()))
}

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

// Synced returns a channel that is closed, for good, when the controller can lead: when each source
// and declared Readable is synced, or its Stale method names a problem. With Options.RequireKinds,
// a problem does not count.
func (c *Controller[K]) Synced() <-chan struct{} { return c.synced }

// AwaitWrites returns when the caches show what each key's last Reconcile wrote, or after
// Options.ReadYourWrites. Then, or if ctx ends before, the error names a write. It does not wait
// for informers that have not synced, nor for kinds that are not served. Call it when all
// Reconciles have returned, as a manager's Remove does.
func (c *Controller[K]) AwaitWrites(ctx context.Context) error { return c.consistency.awaitOwn(ctx) }

// Pause stops new Reconciles until Resume, also in later terms. Keys still become due.
func (c *Controller[K]) Pause() {
	c.pausedAll.Store(true)
	c.updatePauses()
}

// Resume ends Pause, but not PauseKey and annotations.
func (c *Controller[K]) Resume() {
	if c.pausedAll.Swap(false) {
		c.pool.resume(c.now())
		c.updatePauses()
	}
}

// PauseKey stops new Reconciles of a key, known or not, until ResumeKey, or until the object that
// the key names is deleted (for sources with a handler.Identity). If the key names objects of
// several kinds, the deletion of any ends the pause. A running Reconcile finishes. Events during
// the pause make the key due when it ends.
func (c *Controller[K]) PauseKey(key K) { c.setPause(key, program, true) }

// ResumeKey ends PauseKey, but not a pause by [PausedAnnotation].
func (c *Controller[K]) ResumeKey(key K) { c.setPause(key, program, false) }

// Requeue makes a key due at once and ends its backoff. The key still waits for its own writes. A
// key in progress is reconciled once more, a paused key after the pause. With Options.Partition,
// only the process that serves the key can requeue it.
func (c *Controller[K]) Requeue(key K) {
	if c.shards.accepts(key, false) {
		c.current.do(func(q *workqueue.Queue[K]) { q.RequeueNow(key, workqueue.Reason{}) })
	}
}

// RequeueAll makes the keys of all objects due, in class Background, for example after a change of
// the program's configuration. Kind sources deliver all their objects again, as in the
// initial list, and RequeueAll returns nil when their handlers have run. Other sources, and keys
// added to Queue, are not affected. Before Warm it does nothing.
//
// It makes no request. Keys in a backoff are retried at once. Handlers and predicates must not call
// it. RequeueAll returns an error if ctx ends first or a source has stopped.
func (c *Controller[K]) RequeueAll(ctx context.Context) error {
	if !c.warmed.Load() {
		return nil
	}
	return c.named(c.inputs.replay(ctx))
}

// SetLogLevel sets the log level of a key's later Reconciles, until ResetLogLevel, or until the key
// has been reconciled after the deletion of its object. The logger's handler must check levels only
// in Enabled, as the handlers of log/slog do.
func (c *Controller[K]) SetLogLevel(key K, level slog.Level) {
	c.records.edit(key, func(r *record[K]) { r.level, r.gone = &level, false })
}

// ResetLogLevel ends SetLogLevel.
func (c *Controller[K]) ResetLogLevel(key K) {
	c.records.edit(key, func(r *record[K]) { r.level = nil })
}

func (c *Controller[K]) logger(ctx context.Context) *slog.Logger {
	log := c.o.Logger
	if log == nil {
		log = Logger(ctx)
	}
	return log.With("controller", c.name)
}
