// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TheQueue returns the queue.
func (c *Controller[K]) TheQueue() *workqueue.Queue[K] { return c.current.Load() }

// Add calls add as Queue's methods do.
func (c *Controller[K]) Add(add func(*workqueue.Queue[K])) { c.current.do(add) }

// CatchUp is the first part of WaitIdle.
func (c *Controller[K]) CatchUp(ctx context.Context) error { return c.catchUp(ctx) }

// Quiet is the second part of WaitIdle.
func (c *Controller[K]) Quiet(ctx context.Context) (taken uint64, err error) { return c.quiet(ctx) }

// Remembered returns the number of keys with a past.
func (c *Controller[K]) Remembered() int {
	return c.count(func(r record[K]) bool { return r.past != nil })
}

func (c *Controller[K]) count(is func(record[K]) bool) (n int) {
	for _, r := range c.records.all() {
		if is(r) {
			n++
		}
	}
	return n
}

// Hired returns the number of workers.
func (c *Controller[K]) Hired() int {
	return len(c.pool.state().workers)
}

// Counted returns the number of keys with interruptions.
func (c *Controller[K]) Counted() int {
	return c.count(func(r record[K]) bool { return r.interrupted > 0 })
}

// FieldsOf is fieldsOf, as paths.
func FieldsOf(a, b handler.Object) []string { return pathsOf(fieldsOf(a, b)) }

// CutStack is cutStack.
func CutStack(stacks, head string) string { return cutStack(stacks, head) }

// Spinning returns the number of keys with a spin record.
func (c *Controller[K]) Spinning() int {
	return c.count(func(r record[K]) bool { return r.spin.known })
}

// Divide divides the keys as Options.Partition does.
func (c *Controller[K]) Divide(all term.Partition) { c.shards.divide(all) }

func (o Options) Or(d Options) Options { return o.or(d) }

// Fights returns the number of keys with a fight.
func (c *Controller[K]) Fights() int {
	return c.count(func(r record[K]) bool { return r.fight != nil })
}

// PastRuns lists the known keys among some with the numbers of remembered Reconciles.
func (c *Controller[K]) PastRuns(keys []K) string {
	var all []string
	for _, key := range keys {
		if n := len(c.past.of(key)); n > 0 {
			all = append(all, fmt.Sprintf("%v %d", key, n))
		}
	}
	sort.Strings(all)
	return strings.ReplaceAll(strings.Join(all, ", "), "/", "")
}

// PastParts counts what is kept for the history.
func (c *Controller[K]) PastParts() string {
	p := &c.past
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d keys, %d runs, %d with more, %d kept", p.keys.Len()-numClasses, p.runs.Len(), len(p.more), len(p.kept))
}

// ContestOfDeleted reports whether a key that was put off contests an object that it has deleted.
func ContestOfDeleted(c *Controller[string]) bool {
	q := c.current.Load()
	q.AddWith("a", workqueue.AddOptions{Reason: workqueue.Reason{Source: sourceQueue, Event: workqueue.EventAfter}})
	item, _ := q.Get(context.Background())
	gone := pendingWrite{Write: ledger.Write{UID: "u", Effect: ledger.Gone}}
	return c.contest(item, &fight{object: "u", row: fightFree, paused: true, writes: []pendingWrite{gone}}) != nil
}

// ValueOf is what a trace has of an object.
func ValueOf(group, what string, o handler.Object) TracedValue {
	var v values
	return v.of(group, what, o)
}

// DurationsOf counts durations as a controller does.
func DurationsOf(took ...time.Duration) Durations {
	var d durations
	for _, t := range took {
		d.add(t)
	}
	return d.load()
}

// OwnOf returns ownOf's result, sorted.
func OwnOf(w *ledger.Write, fields ...string) string {
	own := pathsOf(ownOf(fieldSet(fields), w))
	sort.Strings(own)
	return strings.Join(own, " ")
}

// ContestedOnly is contestedOnly, for one field.
func ContestedOnly(field string, found ...string) bool {
	return contestedOnly(fieldSet(found), fieldSet([]string{field}))
}

func fieldSet(fields []string) *fieldpath.Set {
	all := fieldpath.NewSet()
	for _, f := range fields {
		var path fieldpath.Path
		for name := range strings.SplitSeq(f, ".") {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		all.Insert(path)
	}
	return all
}
