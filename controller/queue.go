// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

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

func (c *Controller[K]) queueOptions(o Options) (workqueue.Options[K], error) {
	q := c.givenQueue
	of := Options{Classes: q.Classes, Backoff: q.Backoff, Limiter: q.Limiter, MinInterval: q.MinInterval, MaxWait: q.MaxWait}.or(o)
	q.Classes, q.Backoff, q.Limiter, q.MinInterval, q.MaxWait = of.Classes, of.Backoff, of.Limiter, of.MinInterval, of.MaxWait
	q.Name = cmp.Or(q.Name, c.name)
	if q.Classes == nil {
		q.Classes = workqueue.ThreeClasses()
	}
	own := q.Own
	q.Own = func(key K, delivery uint64, r workqueue.Reason) bool {
		return c.own.is(key, delivery, r) || own != nil && own(key, delivery, r)
	}
	if q.Tenant == nil && o.NamespaceTenants {
		q.Tenant = tenantOf[K]()
		if q.Tenant == nil {
			k := reflect.TypeFor[K]()
			return q, fmt.Errorf("controller.Options.NamespaceTenants: a key of type %s has no namespace; give %s a method Tenant() string, or set workqueue.Options.Tenant", k, k)
		}
	}
	return q, nil
}

// newQueue makes a queue with defaults if the options are wrong; Validate reports the error.
func (c *Controller[K]) newQueue() error {
	o, err := c.queueOptions(c.given)
	if err == nil {
		c.queue, err = workqueue.New(o)
	}
	if err != nil {
		c.queue, _ = workqueue.New(workqueue.Options[K]{}) // cannot fail
	}
	return err
}

// Default fills the zero fields of the controller's Options from o, except Grace and Logger. It
// adds o.Hooks to the controller's, unless they were added before. Values set by NewWithQueue and
// SetWorkers remain. NamespaceTenants has no effect if the keys have no namespace. MinInterval and
// MaxWait count as one field. Validate reports an error if o changes the queue although keys were
// added before.
//
// A manager calls Default with its own defaults and hooks. After Warm has begun, it has no effect.
func (c *Controller[K]) Default(o Options) {
	if c.warmed.Load() {
		return // a manager may add a controller again
	}
	if !slices.Contains(c.observers, o.Hooks) {
		c.observers = append(c.observers, o.Hooks)
		c.o.Hooks = c.o.Hooks.With(o.Hooks)
	}
	o.NamespaceTenants = o.NamespaceTenants && tenantOf[K]() != nil
	before := c.given
	c.given = c.given.or(o)
	c.apply()
	c.divide()
	if !c.given.changesQueue(before) {
		return
	}
	q, err := c.queueOptions(c.given)
	if err == nil {
		err = c.queue.Configure(q)
	}
	if err != nil {
		c.inputs.complain("the defaults cannot be applied to its queue: " + err.Error())
	}
}

func (o Options) changesQueue(before Options) bool {
	return (o.Classes == nil) != (before.Classes == nil) || (o.Backoff == nil) != (before.Backoff == nil) || o.Limiter != before.Limiter ||
		o.MinInterval != before.MinInterval || o.MaxWait != before.MaxWait || o.NamespaceTenants != before.NamespaceTenants
}

func (c *Controller[K]) apply() {
	hooks, workers := c.o.Hooks, c.o.Workers
	c.o = c.given.withDefaults()
	c.o.Hooks = hooks
	if c.workers.now().want == workers { // else SetWorkers has set it
		c.workers.set(max(c.o.Workers, 1)) // Validate reports a negative number
	}
	c.consistency.bound, c.interrupts.most = c.o.ReadYourWrites, c.o.Interrupt
}
