// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
)

// Filter drops events that cannot matter. Creates and deletes should always be kept unless the filter is about the object
// itself: a dropped one is never seen again.
type Filter interface {
	// Keep says whether the event goes on to the handler.
	Keep(e Event) bool
	// String names the filter in reports.
	String() string
}

// Change is a filter that keeps creates, deletes, replacements by a new object of the same name, and those updates that
// changed a certain part of the object.
type Change uint8

const (
	// GenerationChanged drops updates of status and metadata only: the API server counts up metadata.generation when the
	// spec changes and when a deletion is requested. Use it on what is reconciled, not on what is waited for. Of kinds that
	// have no generation, such as ConfigMap and Secret, it keeps every update.
	GenerationChanged Change = iota + 1
	// LabelsChanged drops updates that left the labels alone.
	LabelsChanged
	// AnnotationsChanged drops updates that left the annotations alone.
	AnnotationsChanged
	// ResourceVersionChanged drops resyncs, which bring every object again as it is.
	ResourceVersionChanged
)

// Keep implements Filter.
func (c Change) Keep(e Event) bool {
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
	case ResourceVersionChanged:
		return e.Old.GetResourceVersion() != e.New.GetResourceVersion()
	default:
		return true
	}
}

// CheckType refuses a value that is none of the constants.
func (c Change) CheckType(Object) error {
	if c < GenerationChanged || c > ResourceVersionChanged {
		return fmt.Errorf("handler.%s is not a filter: use one of the constants", c)
	}
	return nil
}

// String names the filter.
func (c Change) String() string {
	switch c {
	case GenerationChanged:
		return "generation changed"
	case LabelsChanged:
		return "labels changed"
	case AnnotationsChanged:
		return "annotations changed"
	case ResourceVersionChanged:
		return "resource version changed"
	default:
		return fmt.Sprintf("Change(%d)", uint8(c))
	}
}

// Where keeps the events for which keep returns true. old is nil for a create, new for a delete. Reports call it by its type;
// Named gives it a better name.
func Where[T Object](keep func(old, new T) bool) Filter {
	return where[T]{keep: keep, name: "where(" + reflect.TypeFor[T]().String() + ")"}
}

type where[T Object] struct {
	keep func(old, new T) bool
	name string
}

func (w where[T]) Keep(e Event) bool {
	var before, after T
	if e.Old != nil {
		before, _ = e.Old.(T) // CheckType has seen the type
	}
	if e.New != nil {
		after, _ = e.New.(T)
	}
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
