// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"reflect"
	"sort"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TenantKey is an optional interface of a key type, for [Options].NamespaceTenants.
type TenantKey interface {
	// Tenant returns the key's tenant, such as its namespace. It must always return the same.
	Tenant() string
}

func tenantOf[K comparable]() func(key K) string {
	namespace := func(key types.NamespacedName) string { return key.Namespace }
	if f, ok := any(namespace).(func(K) string); ok {
		return f
	}
	if reflect.TypeFor[K]().Implements(reflect.TypeFor[TenantKey]()) {
		return func(key K) string { return any(key).(TenantKey).Tenant() }
	}
	return nil
}

// currentQueue is a queue that keeps early adds until build, then the built one.
type currentQueue[K comparable] struct {
	atomic.Pointer[workqueue.Queue[K]]

	next atomic.Pointer[workqueue.Queue[K]] // another queue while build copies the keys
}

// do calls f again if build may have missed what f changed.
func (c *currentQueue[K]) do(f func(*workqueue.Queue[K])) {
	q := c.Load()
	f(q)
	if next := c.next.Load(); next != q {
		f(next)
	}
}

// follow calls pause or resume, without a lock, because the queue may call user code. It repeats
// until the state is stable, so that the last call passes the last state.
func (c *currentQueue[K]) follow(isPaused func() bool, pause, resume func(*workqueue.Queue[K])) {
	for {
		paused, f := isPaused(), resume
		if paused {
			f = pause
		}
		c.do(f)
		if isPaused() == paused {
			return
		}
	}
}

// keepEarly uses defaults if the options are wrong; Validate reports the error.
func (c *Controller[K]) keepEarly() {
	o, err := c.queueOptions()
	if err != nil {
		o = workqueue.Options[K]{}
	}
	o.Hook, o.Own, o.MinInterval, o.MaxWait = nil, nil, 0, 0 // they are for the built queue
	q, _ := workqueue.New(o)                                 // cannot fail
	c.current.Store(q)
	c.current.next.Store(q)
}

// build makes the queue, when all options are known, and repeats the early adds.
func (c *Controller[K]) build() error {
	o, err := c.queueOptions()
	if err != nil {
		return err
	}
	q, _ := workqueue.New(o) // cannot fail
	c.queue, c.consistency.queue = q, q
	c.current.next.Store(q)
	early := c.current.Load()
	keys := early.Snapshot().Keys
	sort.SliceStable(keys, func(i, j int) bool { return keys[i].Since.Before(keys[j].Since) })
	for _, k := range keys {
		addEarly(q, k)
	}
	c.current.Store(q)
	early.Pause() // ends Quiet
	c.updatePauses()
	for key := range c.records.all() {
		c.updatePause(key)
	}
	return nil
}

func addEarly[K comparable](q *workqueue.Queue[K], k workqueue.KeyState[K]) {
	how := workqueue.AddOptions{Class: k.Class}
	switch {
	case k.State == workqueue.Ready || k.Again:
	case k.Due.IsZero():
		return // it is only paused
	default:
		how.After = time.Until(k.Due)
	}
	if len(k.Reasons) == 0 {
		k.Reasons = []workqueue.Reason{{}}
	}
	for _, how.Reason = range k.Reasons {
		q.AddWith(k.Key, how)
	}
}

func (c *Controller[K]) queueOptions() (workqueue.Options[K], error) {
	q, o := c.q, c.o
	of := Options{Classes: q.Classes, Backoff: q.Backoff, Limiter: q.Limiter, MinInterval: q.MinInterval, MaxWait: q.MaxWait}.or(o)
	q.Classes, q.Backoff, q.Limiter, q.MinInterval, q.MaxWait = of.Classes, of.Backoff, of.Limiter, of.MinInterval, of.MaxWait
	q.Name, q.Hook = cmp.Or(q.Name, c.name), hook.Join(q.Hook, o.Hook)
	if q.Classes == nil {
		q.Classes = workqueue.ThreeClasses()
	}
	own := q.Own
	q.Own = func(key K, delivery uint64, r workqueue.Reason) (bool, time.Duration) {
		if is, within := c.isOwn(key, delivery, r); is || own == nil {
			return is, within
		}
		return own(key, delivery, r)
	}
	if q.Tenant == nil && o.NamespaceTenants {
		if q.Tenant = tenantOf[K](); q.Tenant == nil {
			k := reflect.TypeFor[K]()
			return q, fmt.Errorf("controller.Options.NamespaceTenants: a key of type %s has no namespace; give %s a method Tenant() string, or set workqueue.Options.Tenant", k, k)
		}
	}
	return q, q.Validate()
}

// Default fills the zero fields of the controller's Options from o, except Grace and Logger. It
// adds o.Hook to the controller's, unless it was added before. Values set by NewWithQueue
// remain. NamespaceTenants has no effect if the keys have no namespace. MinInterval and MaxWait
// count as one field.
//
// A manager calls Default with its own defaults and Hook. After Warm has begun, it has no effect.
func (c *Controller[K]) Default(o Options) {
	if c.warmed.Load() {
		return // a manager may add a controller again
	}
	c.o.Hook = hook.Join(c.o.Hook, o.Hook)
	o.NamespaceTenants = o.NamespaceTenants && tenantOf[K]() != nil
	c.o = c.o.or(o)
	c.pool.set(c.o.workers())
	c.apply()
}

func (c *Controller[K]) apply() {
	c.consistency.bound = cmp.Or(c.o.ReadYourWrites, defaultReadYourWrites)
	c.divide()
}
