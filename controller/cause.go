// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"sync"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// mostCauses is how many causes are told apart. All others count as one.
const mostCauses = 100

// causes limits the log lines about failures: an outage makes each key fail, again and again, for the
// same cause. The zero value is ready to use.
type causes struct {
	mu    sync.Mutex // guards what follows
	lines map[string]*fewLines
}

// next reports whether there is to be a line about an error, and returns its attributes.
func (c *causes) next(err error, args ...any) ([]any, bool) { return c.of(causeOf(err)).next(args...) }

func (c *causes) of(cause string) *fewLines {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines == nil {
		c.lines = map[string]*fewLines{}
	}
	if c.lines[cause] == nil && len(c.lines) >= mostCauses {
		cause = "" // all others
	}
	if c.lines[cause] == nil {
		c.lines[cause] = newFewLines()
	}
	return c.lines[cause]
}

// causeOf returns the same text for errors that have the same cause and are about different objects:
// the reason that the API server gave, or else the innermost error without what is in quotes and
// without digits, which are ports, versions and times.
func causeOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	for {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			var all []string
			for _, err := range joined.Unwrap() {
				all = append(all, causeOf(err))
			}
			return strings.Join(all, "; ")
		}
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	quoted := false
	return strings.Map(func(r rune) rune {
		if r == '"' {
			quoted = !quoted
		}
		if quoted || unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
}
