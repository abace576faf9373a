// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const mostCauses = 100

// Repetition limits log lines. The zero value is ready for use. It is safe for concurrent use.
type Repetition struct {
	mu     sync.Mutex // guards what follows
	limits map[string]map[string]*limit
	said   map[string]map[string]bool
}

type limit struct {
	*rate.Limiter

	unlogged int
}

func newLimit() *limit { return &limit{Limiter: rate.NewLimiter(rate.Every(10*time.Second), 10)} }

func (l *limit) allow(args []any) ([]any, bool) {
	if !l.Allow() {
		l.unlogged++
		return nil, false
	}
	if l.unlogged > 0 {
		args = append(args, "unlogged", l.unlogged)
		l.unlogged = 0
	}
	return args, true
}

// Few reports whether to log a line of a kind, and returns its attributes: ten lines of a cause,
// then one in ten seconds with the number left out. Beyond mostCauses of the kind, all others share
// one limit.
func (l *Repetition) Few(kind, cause string, args ...any) ([]any, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limits == nil {
		l.limits = map[string]map[string]*limit{}
	}
	limits := l.limits[kind]
	if limits == nil {
		limits = map[string]*limit{}
		l.limits[kind] = limits
	}
	if limits[cause] == nil && len(limits) >= mostCauses {
		cause = ""
	}
	of := limits[cause]
	if of == nil {
		of = newLimit()
		limits[cause] = of
	}
	return of.allow(args)
}

// Once reports whether to log a line of a kind, which is logged only once for the same words.
// Beyond mostCauses of the kind, it returns false.
func (l *Repetition) Once(kind string, words ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said == nil {
		l.said = map[string]map[string]bool{}
	}
	said, what := l.said[kind], strings.Join(words, " ")
	if said[what] || len(said) >= mostCauses {
		return false
	}
	if said == nil {
		said = map[string]bool{}
		l.said[kind] = said
	}
	said[what] = true
	return true
}
