// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"fmt"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// InClass keeps every event. It sets the class of events that all given predicates keep, or of
// every event without them. The default is class Normal, or Background for initial lists and
// resyncs. Give InClass to the source: And, Or, Not and Named refuse it. For a class per key, add
// keys to the controller's Queue.
//
//	source.Kind(websites, handler.Self(), handler.InClass(workqueue.Interactive, byUsers))
func InClass(class workqueue.Class, when ...Predicate) Predicate {
	return newChoice("in class "+strings.TrimPrefix(class.String(), "class "), when, func(how *workqueue.AddOptions) { how.Class = class })
}

// After is as InClass, but delays the keys. Another event may make a key due earlier. Zero or
// negative: no delay.
func After(d time.Duration, when ...Predicate) Predicate {
	return newChoice(fmt.Sprintf("after %s", d), when, func(how *workqueue.AddOptions) { how.After = d })
}

type choice struct {
	name  string
	when  []Predicate
	apply func(how *workqueue.AddOptions)
}

func newChoice(name string, when []Predicate, apply func(*workqueue.AddOptions)) Predicate {
	for i, f := range when {
		name += []string{" when ", " and "}[min(i, 1)] + nameOf(f)
	}
	return &choice{name, when, apply}
}

func (c *choice) Keep(Event) bool { return true }

func (c *choice) String() string { return c.name }

// Choose is called by a source for each event that all predicates keep, in their order.
func (c *choice) Choose(e Event, how *workqueue.AddOptions) {
	for _, f := range c.when {
		if !f.Keep(e) {
			return
		}
	}
	c.apply(how)
}

func (c *choice) MetadataOnly() bool { return allMetadataOnly(c.when) }

func (c *choice) CheckType(example Object) error {
	return checkParts(c.name, c.when, example)
}
