// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// mostCauses is how many causes of errors are told apart. All others count as one.
const mostCauses = 100

// errorLog limits the log lines about failures: an outage makes each key fail, again and again, for
// the same cause. The zero value is ready to use.
type errorLog struct {
	mu    sync.Mutex // guards what follows
	lines map[string]*fewLines
}

// of returns the limit of the lines about errors of a cause, see reasonOf.
func (l *errorLog) of(cause string) *fewLines {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = map[string]*fewLines{}
	}
	if l.lines[cause] == nil && len(l.lines) >= mostCauses {
		cause = "" // all others
	}
	if l.lines[cause] == nil {
		l.lines[cause] = newFewLines()
	}
	return l.lines[cause]
}

// reasonOf returns the same text for errors that have the same cause and are about different objects:
// the reason that the API server gave, or else the innermost error without what is in quotes and
// without digits, which are ports, versions and times. It calls the methods of inner errors, which are
// the user's and may panic: then the type of the error is all there is.
func reasonOf(err error) (reason string) {
	whole := err
	defer func() {
		if recover() != nil {
			reason = fmt.Sprintf("%T", whole)
		}
	}()
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	for {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			var all []string
			for _, err := range joined.Unwrap() {
				if err != nil {
					all = append(all, reasonOf(err))
				}
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
