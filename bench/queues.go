// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

type key = types.NamespacedName

// queue is the common interface of the contestants.
type queue interface {
	Add(key)
	AddAfter(key, time.Duration)
	// Next takes a key and settles it: as failed if fail returns true, else as done. It returns
	// false after Close, when the queue is empty.
	Next(fail func(key) bool) bool
	Len() int
	Close()
}

// mode selects the features of a queue.
type mode int

const (
	plain    mode = iota // first in, first out only; for Setpoint, reasons off
	defaults             // without options
	extras               // everything: classes, tenants, reasons; metrics
)

var modes = map[mode]string{
	plain: "plain FIFO, reasons off", defaults: "without options", extras: "classes, tenants, reasons, metrics",
}

// maker makes a contestant. base is the first backoff.
type maker struct {
	name string
	make func(base time.Duration, m mode) queue
}

var makers = []maker{{"setpoint", newOurs}, {"client-go", newClientGo}, {"controller-runtime", newControllerRuntime}}

const longest = time.Millisecond // of the backoffs

var background = context.Background()

type ours struct {
	q     *workqueue.Queue[key]
	how   workqueue.AddOptions
	plain bool
}

func newOurs(base time.Duration, m mode) queue {
	o := workqueue.Options[key]{Backoff: workqueue.Exponential{Base: base, Max: longest}}
	if m == plain {
		o.Reasons = -1
	}
	var how workqueue.AddOptions
	if m == extras {
		o.Name = "bench"
		o.Classes = workqueue.ThreeClasses()
		o.Tenant = func(k key) string { return k.Namespace }
		o.Hook = countingHooks()
		how.Class = workqueue.Interactive
		how.Reason = workqueue.Reason{Source: "pods", Event: "Update", Object: "default/pod", ResourceVersion: "12345"}
	}
	q, err := workqueue.New(o)
	if err != nil {
		panic(err)
	}
	return &ours{q, how, m != extras}
}

func (o *ours) Add(k key) {
	if o.plain {
		o.q.Add(k)
		return
	}
	o.q.AddWith(k, o.how)
}

// renewing gives each add its own reason, unless reasons are off.
type renewing struct {
	*ours
	n int
}

func (r *renewing) Add(k key) {
	if !r.plain {
		r.n++
		// Differs from the previous reason of each of the 1024 keys.
		r.how.Reason.ResourceVersion = versions[r.n/1024&1023]
	}
	r.ours.Add(k)
}

var versions = func() []string {
	vs := make([]string, 1024)
	for i := range vs {
		vs[i] = strconv.Itoa(1_000_000 + i)
	}
	return vs
}()

func (o *ours) AddAfter(k key, d time.Duration) {
	how := o.how
	how.After = d
	o.q.AddWith(k, how)
}

func (o *ours) Next(fail func(key) bool) bool {
	item, ok := o.q.Get(background)
	if !ok {
		return false
	}
	if fail(item.Key()) {
		_, _ = item.Retry(nil)
	} else {
		_ = item.Done()
	}
	return true
}

func (o *ours) Len() int { return o.q.Len().Ready }
func (o *ours) Close()   { o.q.ShutDown() }

// interfaced is a queue of client-go or controller-runtime.
type interfaced struct {
	clientgo.TypedRateLimitingInterface[key]
}

func (q interfaced) Next(fail func(key) bool) bool {
	k, shutdown := q.Get()
	if shutdown {
		return false
	}
	if fail(k) {
		q.AddRateLimited(k)
	} else {
		q.Forget(k)
	}
	q.Done(k)
	return true
}

func (q interfaced) Close() { q.ShutDown() }

func newClientGo(base time.Duration, m mode) queue {
	c := clientgo.TypedRateLimitingQueueConfig[key]{}
	if m == extras {
		c.Name, c.MetricsProvider = "bench", new(counters)
	}
	limiter := clientgo.NewTypedItemExponentialFailureRateLimiter[key](base, longest)
	return interfaced{clientgo.NewTypedRateLimitingQueueWithConfig(limiter, c)}
}

func newControllerRuntime(base time.Duration, m mode) queue {
	name := ""
	if m == extras {
		name = "bench"
	}
	return interfaced{priorityqueue.New(name, func(o *priorityqueue.Opts[key]) {
		o.RateLimiter = clientgo.NewTypedItemExponentialFailureRateLimiter[key](base, longest)
		o.MetricProvider = new(counters)
	})}
}

// counters are the cheapest metrics that still count. A metrics library adds the same cost to all
// contestants.
type counters struct{ n [7]counter }

type counter struct{ v atomic.Int64 }

func (c *counter) Inc()              { c.v.Add(1) }
func (c *counter) Dec()              { c.v.Add(-1) }
func (c *counter) Set(float64)       {}
func (c *counter) Observe(s float64) { c.v.Add(int64(s * 1e9)) }

func (c *counters) NewDepthMetric(string) clientgo.GaugeMetric            { return &c.n[0] }
func (c *counters) NewAddsMetric(string) clientgo.CounterMetric           { return &c.n[1] }
func (c *counters) NewLatencyMetric(string) clientgo.HistogramMetric      { return &c.n[2] }
func (c *counters) NewWorkDurationMetric(string) clientgo.HistogramMetric { return &c.n[3] }
func (c *counters) NewUnfinishedWorkSecondsMetric(string) clientgo.SettableGaugeMetric {
	return &c.n[4]
}
func (c *counters) NewLongestRunningProcessorSecondsMetric(string) clientgo.SettableGaugeMetric {
	return &c.n[5]
}
func (c *counters) NewRetriesMetric(string) clientgo.CounterMetric { return &c.n[6] }

// countingHooks feed the same counters.
func countingHooks() *hook.Hook {
	c := new(counters)
	return hook.Join(
		hook.On(func(e *hook.QueueAdded) { c.n[0].v.Add(int64(e.Keys)); c.n[1].v.Add(int64(e.Keys)) }),
		hook.On(func(e *hook.QueueTaken) { c.n[0].Dec(); c.n[2].Observe(e.Waited.Seconds()) }),
		hook.On(func(e *hook.QueueSettled) {
			c.n[3].Observe(e.Held.Seconds())
			if e.Outcome == hook.QueueRetry {
				c.n[6].Inc()
			}
		}),
		hook.On(func(*hook.QueueDelayed) { c.n[6].Inc() }),
	)
}
