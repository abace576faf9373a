// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
)

// Predicate drops events that cannot matter. Keep creates and deletes, unless the predicate is about the
// object itself: no other event brings back a dropped one.
type Predicate interface {
	// Keep reports whether the event goes on to the handler.
	Keep(e Event) bool
	// String names the predicate in reports.
	String() string
}

// These predicates keep creates, deletes, replacements by a new object of the same name, and those
// updates that changed a certain part of the object.
const (
	// GenerationChanged drops updates of status and metadata only: the API server counts up
	// metadata.generation when the spec changes and when a deletion is requested. Use it on what is
	// reconciled, not on what is waited for. Of kinds that have no generation, such as ConfigMap and
	// Secret, it keeps every update.
	GenerationChanged change = "generation changed"
	// LabelsChanged drops updates that left the labels alone.
	LabelsChanged change = "labels changed"
	// AnnotationsChanged drops updates that left the annotations alone.
	AnnotationsChanged change = "annotations changed"
	// ResourceVersionChanged drops resyncs, which bring every object again as it is.
	ResourceVersionChanged change = "resource version changed"
)

type change string

func (c change) Keep(e Event) bool {
	if e.Old == nil || e.New == nil || e.Old.GetUID() != e.New.GetUID() {
		return true
	}
	switch c {
	case GenerationChanged:
		return e.Old.GetGeneration() != e.New.GetGeneration() || e.New.GetGeneration() == 0
	case LabelsChanged:
		return !maps.Equal(e.Old.GetLabels(), e.New.GetLabels())
	case AnnotationsChanged:
		return !maps.Equal(e.Old.GetAnnotations(), e.New.GetAnnotations())
	default:
		return e.Old.GetResourceVersion() != e.New.GetResourceVersion()
	}
}

func (c change) String() string { return string(c) }

// Where keeps the events for which keep returns true. old is nil for a create, new for a delete.
// Reports call it by its type; Named gives it a better name.
func Where[T Object](keep func(old, new T) bool) Predicate {
	return where[T]{keep, "where(" + reflect.TypeFor[T]().String() + ")"}
}

type where[T Object] struct {
	keep func(old, new T) bool
	name string // made once, not for each event
}

func (w where[T]) Keep(e Event) bool {
	before, _ := e.Old.(T) // CheckType has seen the type
	after, _ := e.New.(T)
	return w.keep(before, after)
}

func (w where[T]) CheckType(example Object) error {
	if w.keep == nil {
		return errors.New("handler.Where was given no function")
	}
	_, err := as[T](example)
	return err
}

func (w where[T]) String() string { return w.name }

// And keeps what every one of the predicates keeps. A source with several predicates does the same, and
// counts for each what it dropped; use And inside Or and Not.
func And(predicates ...Predicate) Predicate { return combine("and", predicates) }

// Or keeps what at least one of the predicates keeps:
//
//	handler.Or(handler.GenerationChanged, handler.AnnotationsChanged)
func Or(predicates ...Predicate) Predicate { return combine("or", predicates) }

// Not keeps what f drops. GenerationChanged and its like keep creates and deletes: Not of one drops
// them.
func Not(f Predicate) Predicate {
	return &combination{op: "not", parts: []Predicate{f}, name: "not " + nameOf(f)}
}

// Named gives a predicate another name in reports.
func Named(name string, f Predicate) Predicate {
	return &combination{op: "named", parts: []Predicate{f}, name: name}
}

// combination is a predicate made of others. It makes its name once, not for each event.
type combination struct {
	op    string // and, or, not, named
	parts []Predicate
	name  string
}

func combine(op string, predicates []Predicate) Predicate {
	names := make([]string, len(predicates))
	for i, f := range predicates {
		names[i] = nameOf(f)
	}
	return &combination{op: op, parts: predicates, name: "(" + strings.Join(names, " "+op+" ") + ")"}
}

func nameOf(f Predicate) string {
	if f == nil {
		return "nil"
	}
	return f.String()
}

func (c *combination) Keep(e Event) bool {
	if c.op == "not" {
		return !c.parts[0].Keep(e)
	}
	for _, f := range c.parts {
		if keep := f.Keep(e); keep == (c.op == "or") {
			return keep
		}
	}
	return c.op != "or"
}

func (c *combination) CheckType(example Object) error {
	if len(c.parts) == 0 {
		return fmt.Errorf("a predicate that combines others with %q was given none", c.op)
	}
	if c.name == "" {
		return errors.New("handler.Named was given no name")
	}
	var wrong []error
	for _, f := range c.parts {
		if f == nil {
			wrong = append(wrong, fmt.Errorf("a part of the predicate %q is nil", c.name))
		} else if t, ok := f.(TypeChecker); ok {
			wrong = append(wrong, t.CheckType(example))
		}
	}
	return errors.Join(wrong...)
}

func (c *combination) String() string { return c.name }
