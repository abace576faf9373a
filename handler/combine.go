// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler

import (
	"errors"
	"fmt"
	"strings"
)

// And keeps what every one of the filters keeps. To give a source several filters does the same, and counts for each of them
// what it dropped; And is for use inside Or and Not.
func And(filters ...Filter) Filter { return combine("and", filters) }

// Or keeps what at least one of the filters keeps:
//
//	handler.Or(handler.GenerationChanged, handler.AnnotationsChanged)
func Or(filters ...Filter) Filter { return combine("or", filters) }

// Not keeps what f drops. Mind that a Change keeps creates and deletes, so that Not of one drops them.
func Not(f Filter) Filter {
	return &combination{op: "not", parts: []Filter{f}, name: "not " + nameOf(f)}
}

// Named gives a filter another name in reports.
func Named(name string, f Filter) Filter {
	return &combination{op: "named", parts: []Filter{f}, name: name}
}

// combination is a filter made of others. Its name is made once, not for each event.
type combination struct {
	op    string // and, or, not, named
	parts []Filter
	name  string
}

func combine(op string, filters []Filter) Filter {
	names := make([]string, len(filters))
	for i, f := range filters {
		names[i] = nameOf(f)
	}
	return &combination{op: op, parts: filters, name: "(" + strings.Join(names, " "+op+" ") + ")"}
}

func nameOf(f Filter) string {
	if f == nil {
		return "nil"
	}
	return f.String()
}

// Keep implements Filter.
func (c *combination) Keep(e Event) bool {
	switch c.op {
	case "not":
		return !c.parts[0].Keep(e)
	case "or":
		for _, f := range c.parts {
			if f.Keep(e) {
				return true
			}
		}
		return false
	default:
		for _, f := range c.parts {
			if !f.Keep(e) {
				return false
			}
		}
		return true
	}
}

// CheckType asks the parts.
func (c *combination) CheckType(example Object) error {
	if len(c.parts) == 0 {
		return fmt.Errorf("a filter that combines others with %q was given none", c.op)
	}
	if c.name == "" {
		return errors.New("handler.Named was given no name")
	}
	var wrong []error
	for _, f := range c.parts {
		if f == nil {
			wrong = append(wrong, fmt.Errorf("a part of the filter %q is nil", c.name))
		} else if t, ok := f.(TypeChecker); ok {
			wrong = append(wrong, t.CheckType(example))
		}
	}
	return errors.Join(wrong...)
}

// String names the filter and its parts.
func (c *combination) String() string { return c.name }
