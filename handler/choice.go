// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// Chooser is an optional interface of a Handler or a Predicate. It chooses the class and the delay
// of the keys of an event. [InClass] and [After] make predicates with it. For a choice per key, add
// keys to the controller's Queue yourself.
type Chooser interface {
	// Choose may change how.Class and how.After. how has the defaults: class Normal, or Background
	// for initial lists and resyncs. It is called for events that all predicates keep, first for
	// the predicates in their order, then for the handler. The rules for Keep apply to Choose.
	Choose(e Event, how *workqueue.AddOptions)
}

// InClass chooses a class for the events that all predicates keep, or for every event. It keeps all
// events itself:
//
//	source.Kind(websites, handler.Self(), handler.InClass(workqueue.Interactive, byUsers))
func InClass(class workqueue.Class, when ...Predicate) Predicate {
	return newChoice("in class "+strings.TrimPrefix(class.String(), "class "), when, func(how *workqueue.AddOptions) { how.Class = class })
}

// After delays the keys of the events that all predicates keep, or of every event. It keeps all
// events itself. Another event may make the key due earlier. Zero or negative: no delay.
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

func (c *choice) Choose(e Event, how *workqueue.AddOptions) {
	for _, f := range c.when {
		if !f.Keep(e) {
			return
		}
	}
	c.apply(how)
}

func (c *choice) CheckType(example Object) error {
	var wrong []error
	for _, f := range c.when {
		if f == nil {
			wrong = append(wrong, fmt.Errorf("handler: a part of the predicate %q is nil", c.name))
		} else if t, ok := f.(TypeChecker); ok {
			wrong = append(wrong, t.CheckType(example))
		}
	}
	return errors.Join(wrong...)
}

// choices is a combination with parts that choose.
type choices struct {
	*combination

	choosers []Chooser
}

// choosing returns the combination, as a Chooser if one of its parts is one.
func choosing(c *combination) Predicate {
	var choosers []Chooser
	for _, f := range c.parts {
		if chooser, ok := f.(Chooser); ok {
			choosers = append(choosers, chooser)
		}
	}
	if choosers == nil {
		return c
	}
	return &choices{c, choosers}
}

func (c *choices) Choose(e Event, how *workqueue.AddOptions) {
	for _, f := range c.choosers {
		f.Choose(e, how)
	}
}
