// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/traceparent"
)

// Predicate keeps or drops events. It must be safe for concurrent use. A dropped event does not
// come again, so keep creates and deletes unless the predicate is about the object itself.
type Predicate interface {
	// Keep reports whether the event goes on to the handler.
	Keep(e Event) bool
	// String names the predicate in State and metrics.
	String() string
}

// These predicates keep creates, deletes, replacements by a new object of the same name, and
// updates of one part of the object. They keep an update to an older version: the API server was
// restored from a backup, which may have undone any part.
const (
	// GenerationChanged drops updates of only status or metadata. The API server increments
	// metadata.generation when the spec changes or a deletion is requested. Use it for the objects
	// that you reconcile, not for those whose status you wait for. It keeps all updates of kinds
	// without a generation, such as ConfigMap and Secret.
	GenerationChanged change = "generation changed"
	// LabelsChanged drops updates with equal labels.
	LabelsChanged change = "labels changed"
	// AnnotationsChanged drops updates with equal annotations. tracing.k8s.io/traceparent does not
	// count.
	AnnotationsChanged change = "annotations changed"
	// ResourceVersionChanged drops resyncs, which deliver every object again unchanged.
	ResourceVersionChanged change = "resource version changed"
)

type change string

func (c change) Keep(e Event) bool {
	if e.Old == nil || e.New == nil || e.Old.GetUID() != e.New.GetUID() || object.Before(e.New.GetResourceVersion(), e.Old.GetResourceVersion()) {
		return true
	}
	switch c {
	case GenerationChanged:
		return e.Old.GetGeneration() != e.New.GetGeneration() || e.New.GetGeneration() == 0
	case LabelsChanged:
		return !maps.Equal(e.Old.GetLabels(), e.New.GetLabels())
	case AnnotationsChanged:
		return !traceparent.SameAnnotations(e.Old.GetAnnotations(), e.New.GetAnnotations())
	default:
		return e.Old.GetResourceVersion() != e.New.GetResourceVersion()
	}
}

func (change) MetadataOnly() bool { return true }

func (c change) String() string { return string(c) }

// Where keeps the events for which keep returns true. old is nil for a create, new for a delete.
// State shows its type; Named gives it a better name.
func Where[T Object](keep func(old, new T) bool) Predicate {
	return where[T]{keep, "where(" + reflect.TypeFor[T]().String() + ")"}
}

type where[T Object] struct {
	keep func(old, new T) bool
	name string // built once, not for each event
}

func (w where[T]) Keep(e Event) bool {
	before, _ := e.Old.(T) // CheckType has seen the type
	after, _ := e.New.(T)
	return w.keep(before, after)
}

func (w where[T]) CheckType(example Object) error {
	if w.keep == nil {
		return errors.New("handler.Where: the function is nil")
	}
	_, err := as[T](example)
	return err
}

func (w where[T]) String() string { return w.name }

// And keeps an event if all predicates do. Use it inside Or and Not; a source's predicates work
// like it, and count the drops of each.
func And(predicates ...Predicate) Predicate { return combine("and", predicates) }

// Or keeps an event if at least one predicate does.
func Or(predicates ...Predicate) Predicate { return combine("or", predicates) }

// Not keeps the events that f drops. Not(GenerationChanged) drops all creates and deletes.
func Not(f Predicate) Predicate {
	return &combination{op: "not", parts: []Predicate{f}, name: "not " + nameOf(f)}
}

// Named gives a predicate another name in State and metrics.
func Named(name string, f Predicate) Predicate {
	return &combination{op: "named", parts: []Predicate{f}, name: name}
}

type combination struct {
	op    string // and, or, not, named
	parts []Predicate
	name  string
}

func combine(op string, predicates []Predicate) *combination {
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

func (c *combination) MetadataOnly() bool { return allMetadataOnly(c.parts) }

func allMetadataOnly(parts []Predicate) bool {
	return !slices.ContainsFunc(parts, func(p Predicate) bool { return !metadataOnly(p) })
}

func (c *combination) CheckType(example Object) error {
	if len(c.parts) == 0 {
		return fmt.Errorf("handler: %q combines no predicates; give at least one", c.op)
	}
	if c.name == "" {
		return errors.New("handler.Named: the name is empty")
	}
	wrong := []error{checkParts(c.name, c.parts, example)}
	for _, f := range c.parts {
		if _, ok := f.(*choice); ok {
			wrong = append(wrong, fmt.Errorf("handler: the predicate %q cannot choose a class or a delay inside %q; give it to the source, and its conditions as arguments", nameOf(f), c.op))
		}
	}
	return errors.Join(wrong...)
}

func checkParts(name string, parts []Predicate, example Object) error {
	var wrong []error
	for _, f := range parts {
		if f == nil {
			wrong = append(wrong, fmt.Errorf("handler: a part of the predicate %q is nil", name))
		} else if t, ok := f.(typeChecker); ok {
			wrong = append(wrong, t.CheckType(example))
		}
	}
	return errors.Join(wrong...)
}

func (c *combination) String() string { return c.name }
