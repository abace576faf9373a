// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"sync"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// environment is what the informers of a cache have in common.
type environment struct {
	backend Backend // nil if there is none
	hooks   hook.Cache
	strings sharedStrings
	users   sync.Map // from *Declarations to *User, see Attach

	mu   sync.Mutex // guards news, the states of the informers, and what Cache says
	news run.Barrier
}

// User is what a controller wants to know of its caches, and they of it, while it runs.
type User struct {
	// Relisted is called whenever an informer has listed everything again, perhaps before its store has
	// the list. It must not block.
	Relisted func()
	// Recovered is called whenever an informer begins to follow the API server, also after a failure. It
	// must not block.
	Recovered func()
	// Reconciles reports whether a Reconcile runs on the goroutine whose stack this is, as
	// runtime.Stack has it, or has started that goroutine, and of which key.
	Reconciles func(stack string) (key string, ok bool)
}

// changed returns a channel that is closed when the state of an informer changes next, or the scope of
// a handle. Take it, look at what may have changed, then wait for it.
func (e *environment) changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.news.When(false)
}

// ring wakes those that wait for a change.
func (e *environment) ring() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.news.Open()
}

// relisted tells the controllers that an informer has listed everything, perhaps before its store has it.
func (e *environment) relisted() { e.tell(func(u *User) { u.Relisted() }) }

// recovered tells the controllers that an informer follows the API server, perhaps again.
func (e *environment) recovered() { e.tell(func(u *User) { u.Recovered() }) }

func (e *environment) tell(f func(*User)) {
	e.users.Range(func(_, u any) bool {
		f(u.(*User)) //nolint:forcetypeassert // it has nothing else
		return true
	})
}
