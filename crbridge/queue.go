// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	theirsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// requests is the queue that event handlers and sources of controller-runtime fill. Workers take
// nothing from it.
type requests struct {
	add     func(keys []types.NamespacedName, how workqueue.AddOptions)
	limited func(reconcile.Request) time.Duration // of AddRateLimited
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = (*requests)(nil)

func (q *requests) Add(r reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, r) }

func (q *requests) AddAfter(r reconcile.Request, d time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: d}, r)
}

func (q *requests) AddRateLimited(r reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, r)
}

func (q *requests) AddWithOpts(o priorityqueue.AddOpts, all ...reconcile.Request) {
	how := workqueue.AddOptions{After: max(o.After, 0)}
	if o.Priority != nil {
		how.Class = classOf(*o.Priority)
	}
	if !o.RateLimited {
		keys := make([]types.NamespacedName, 0, len(all))
		for _, r := range all {
			keys = append(keys, r.NamespacedName)
		}
		q.add(keys, how)
		return
	}
	for _, r := range all {
		how.After = q.limited(r)
		q.add([]types.NamespacedName{r.NamespacedName}, how)
	}
}

// classOf maps a priority: 0 is normal.
func classOf(priority int) workqueue.Class {
	switch {
	case priority > 0:
		return workqueue.Interactive
	case priority < 0:
		return workqueue.Background
	default:
		return workqueue.Normal
	}
}

func (q *requests) Get() (reconcile.Request, bool) { return reconcile.Request{}, true }

func (q *requests) GetWithPriority() (reconcile.Request, int, bool) {
	return reconcile.Request{}, 0, true
}

func (q *requests) Done(reconcile.Request)            {}
func (q *requests) Forget(reconcile.Request)          {}
func (q *requests) NumRequeues(reconcile.Request) int { return 0 }
func (q *requests) Len() int                          { return 0 }
func (q *requests) ShutDown()                         {}
func (q *requests) ShutDownWithDrain()                {}
func (q *requests) ShuttingDown() bool                { return false }

// rawSource is a source of controller-runtime.
type rawSource struct {
	theirs theirsource.Source
	by     *built
	status source.Status
}

func (s *rawSource) String() string {
	if named, ok := s.theirs.(interface{ String() string }); ok {
		return named.String()
	}
	return "source of controller-runtime"
}

func (s *rawSource) Status() *source.Status { return &s.status }

// Run starts the source. What it starts ends with ctx.
func (s *rawSource) Run(ctx context.Context, to source.Sink[types.NamespacedName]) error {
	name := s.String()
	q := &requests{limited: s.by.limiter.When, add: func(keys []types.NamespacedName, how workqueue.AddOptions) {
		if ctx.Err() == nil {
			how.Reason = workqueue.Reason{Source: name, Event: workqueue.EventAdded}
			to.Queue.AddAll(keys, how)
		}
	}}
	ctx = context.WithValue(s.by.bridge.based(ctx), builtKey{}, s.by)
	if err := s.theirs.Start(ctx, q); err != nil {
		return err
	}
	if syncing, ok := s.theirs.(theirsource.SyncingSource); ok {
		if err := syncing.WaitForSync(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	s.status.SetSynced()
	<-ctx.Done()
	return nil
}
