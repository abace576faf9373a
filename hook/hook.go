// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "slices"

// Hook calls observers for events. A nil Hook has none, and all its methods work. It does not
// change, and is safe for concurrent use.
type Hook struct{ observers []*observer }

type observer struct {
	observe func(Event)
	gets    func(Event) bool // also of a nil pointer; nil: all
}

// New returns a Hook that calls f, which must not be nil, for all events.
func New(f func(Event)) *Hook { return &Hook{[]*observer{{observe: f}}} }

// On returns a Hook that calls f, which must not be nil, for events of one type.
func On[E Event](f func(E)) *Hook {
	return &Hook{[]*observer{{
		observe: func(e Event) {
			if e, ok := e.(E); ok {
				f(e)
			}
		},
		gets: func(e Event) bool {
			_, ok := e.(E)
			return ok
		},
	}}}
}

// Join returns a Hook with all observers of some, in their order. One that occurs twice is called
// once.
func Join(hooks ...*Hook) *Hook {
	var all *Hook
	for _, h := range hooks {
		switch {
		case h == nil:
		case all == nil:
			all = h
		default:
			for _, o := range h.observers {
				if !slices.Contains(all.observers, o) {
					all = &Hook{append(slices.Clip(all.observers), o)}
				}
			}
		}
	}
	return all
}

// Gets reports whether an observer of h gets events of a type. A sender need not make the others.
func Gets[E Event](h *Hook) bool {
	var e E
	return h != nil && slices.ContainsFunc(h.observers, func(o *observer) bool { return o.gets == nil || o.gets(e) })
}

// Send calls the observers, one after the other. If one panics, the others are called first.
func (h *Hook) Send(e Event) {
	if h != nil {
		send(h.observers, e)
	}
}

func send(to []*observer, e Event) {
	done := 0
	defer func() {
		if done < len(to) { // it panics
			send(to[done+1:], e)
		}
	}()
	for ; done < len(to); done++ {
		to[done].observe(e)
	}
}
