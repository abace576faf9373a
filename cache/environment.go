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
	users   sync.Map // of *Declarations, see Attach

	mu   sync.Mutex // guards news, the states of the informers, and what Cache says
	news run.Barrier
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
	e.users.Range(func(d, _ any) bool {
		if u := d.(*Declarations).user.Load(); u != nil { //nolint:forcetypeassert // it has nothing else
			f(u)
		}
		return true
	})
}
