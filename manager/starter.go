// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"slices"
	"sync"
)

// starter starts its members when it opens, and later members at once.
type starter[T any] struct {
	mu *sync.Mutex // the registry's; guards the fields below

	all   []T
	start func(T) // nil while closed
}

func (l *starter[T]) addLocked(member T) {
	l.all = append(l.all, member)
	if l.start != nil {
		l.start(member)
	}
}

func (l *starter[T]) current() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func (l *starter[T]) open(start func(T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = start
	for _, member := range l.all {
		start(member)
	}
}

func (l *starter[T]) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = nil
}
