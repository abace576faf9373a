// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Decodes implements journal.Owner.
func (t *lead[K]) Decodes(r schema.GroupResource) bool {
	return t.controller.inputs.informers.Selects(r)
}

// Late implements journal.Owner.
func (t *lead[K]) Late(err *ledger.LateWriteError) {
	w := &err.Request
	if t.controller.repetition.Once("late", w.Verb, w.Group, w.Resource, w.Subresource) {
		slog.New(t.log).Error("refused a write that began after its Reconcile had returned",
			"key", fmt.Sprint(err.Key), "reconcileID", err.ReconcileID, "err", err)
	}
}

func (t *lead[K]) runWorkers(take, work context.Context) error {
	c := t.controller
	var all, watching sync.WaitGroup
	hire := func() *worker[K] {
		w := &worker[K]{}
		all.Go(func() {
			w.goroutine = run.Goroutine()
			c.pool.work(w, func() bool { return t.processNextItem(take, work, w) })
		})
		return w
	}
	if !c.pool.open(hire, c.now(), t.origin.Term) {
		return errors.New("Lead is already running; end that term first")
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(take))
	watching.Go(func() { t.watch(ctx, work) })
	watching.Go(func() { t.reportFights(ctx) })
	following, unfollow := context.WithCancel(take)
	if c.shards.divided() {
		watching.Go(func() { t.serveSlots(following, work) })
	}
	all.Wait()
	unfollow()
	stop()
	watching.Wait()
	c.pool.close()
	c.endPausesOverHTTP(func(K) bool { return true })
	if d := c.shards.of.Load(); d != nil {
		d.keep(nil) // no key is served
	}
	return nil
}

func (t *lead[K]) processNextItem(take, work context.Context, w *worker[K]) bool {
	c := t.controller
	item, ok := c.queue.Get(take)
	if !ok {
		return false
	}
	if work.Err() != nil { // a lost term ends both contexts, not necessarily take first
		_ = item.Release() // cannot fail: the item is held
		return false
	}
	if !c.shards.divided() {
		t.process(work, item, w)
		return true
	}
	on := c.shards.servedOf(item.Key())
	if on == nil || !on.Begin() {
		t.drop(item, on)
		return true
	}
	// End follows the settle.
	defer on.End()
	t.process(on, item, w) //nolint:contextcheck // it derives from work
	return true
}

func (t *lead[K]) process(work context.Context, item workqueue.Item[K], w *worker[K]) { //nolint:contextcheck // r is the context
	c := t.controller
	of := c.records.take(item.Key())
	of.past = c.consistency.awaitEvents(of.events, of.past)
	if c.hold(item, of.past) { //nolint:contextcheck // it asks without waiting
		return
	}
	past := of.past
	by, why := c.causeOf(item, &of)
	contested := c.contest(item, of.fight)
	if c.slowDown(item, &of, by) || t.slowFight(item, &of, contested) || past != nil && c.consistency.putOff(work, item, past) {
		return
	}
	if past != nil && !past.since.IsZero() {
		// Endless events must not keep the key waiting: it is due again for those that came while
		// it waited, and that some informer still does not show.
		for _, e := range c.consistency.pendingEvents(item.Key()) {
			c.queue.AddWith(item.Key(), e.how)
		}
	}
	r := t.begin(work, item, &of, c.now())
	w.run.Store(r)
	c.beginSpin(item.Key(), &r.log, past, by, why)
	r.fight, r.round, r.spins = c.beginFight(item.Key(), of.fight), contested, of.spin.row >= spinFree-3
	if past != nil && past.expired {
		if args, ok := c.repetition.Few("expired", "", "bound", c.consistency.bound.String(), "err", past.doubts); ok {
			what := "reconciled before its own writes were visible in the cache"
			if !slices.ContainsFunc(past.writes, func(w pendingWrite) bool { return w.state == writeGivenUp && w.event == nil }) {
				what = "reconciled before all its informers showed the change of an object"
			}
			r.log.Warn(what, args...)
		}
	}
	var end ending
	returned := false
	var ctx context.Context = r
	defer func() {
		if !returned {
			end = aborted(fmt.Errorf("the reconciler %w", run.ErrExited))
		}
		end.gaveUp = t.givesUp(r, &end)
		r.end()
		now := c.now()
		c.pool.completed.Store(int64(now))
		c.pool.took.add(now - r.since)
		c.pool.countRequests(r.begun())
		w.run.Store(nil)
		c.endSpin(item.Key(), end.outcome, end.result.RequeueAfter, r.wrote() != nil)
		r.remember(&end, now-r.since)
		c.notes.keep(item.Key(), r.notes.all())
		t.callReconciled(ctx, w, r, &end)
		t.settle(r, end) //nolint:contextcheck // r is the context
		r.cancel(nil)
	}()
	ctx = t.callReconciling(w, r)
	end = t.reconcile(ctx, r) //nolint:contextcheck // ctx is r, or derived from it
	returned = true
}

func (t *lead[K]) reconcile(ctx context.Context, r *running[K]) (end ending) {
	defer func() {
		if p := recover(); p != nil {
			end = aborted(&PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	result, err := t.controller.reconciler.Reconcile(ctx, r.item.Key())
	return r.judge(result, err) //nolint:contextcheck // r is the context
}

func (t *lead[K]) callReconciling(w *worker[K], r *running[K]) context.Context {
	c := t.controller
	if !hook.Gets[*hook.Reconciling](c.o.Hook) {
		return r
	}
	w.began = hook.Reconciling{Controller: c.name, Context: r}
	c.o.Hook.Send(&w.began)
	ctx := w.began.Context
	if ctx == nil {
		return r
	}
	if of, _ := ctx.Value(infoKey{}).(*running[K]); of != r {
		if c.repetition.Once("foreign context") {
			slog.New(t.log).Error("the observer of a Reconciling set a Context that is not derived from the given one; the Reconcile gets the given one")
		}
		return r
	}
	return ctx
}

func (t *lead[K]) callReconciled(ctx context.Context, w *worker[K], r *running[K], end *ending) {
	c := t.controller
	w.began = hook.Reconciling{} // it keeps r
	if hook.Gets[*hook.Reconciled](c.o.Hook) {
		w.ended = hook.Reconciled{
			Controller: c.name, Context: ctx, Took: c.now() - r.since, Outcome: end.outcome, Err: end.err, GaveUp: end.gaveUp,
			TimedOut: c.o.Deadline > 0 && errors.Is(context.Cause(r), errDeadline), //nolint:contextcheck // r is the context
		}
		c.o.Hook.Send(&w.ended)
		w.ended = hook.Reconciled{}
	}
	if end.gaveUp {
		c.o.Hook.Send(&hook.GaveUp{
			Controller: c.name, Key: fmt.Sprint(r.item.Key()), ReconcileID: r.id(),
			Attempts: r.item.Attempt(), Err: end.err,
		})
	}
}
