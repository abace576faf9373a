// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import "sync"

// launcher starts its members when it opens, and later members at once.
type launcher[T any] struct {
	mu *sync.Mutex // the roster's; guards the fields below

	all   []T
	start func(T) // nil while closed
}

func (l *launcher[T]) addLocked(member T) {
	l.all = append(l.all, member)
	if l.start != nil {
		l.start(member)
	}
}

func (l *launcher[T]) open(start func(T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = start
	for _, member := range l.all {
		start(member)
	}
}

func (l *launcher[T]) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = nil
}
