// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"time"
)

// Phase is where an informer stands.
type Phase string

const (
	// NotStarted: the cache does not run yet.
	NotStarted Phase = "not started"
	// Waiting: the API server does not serve the kind (yet).
	Waiting Phase = "waiting for its API"
	// Syncing: the initial list is under way.
	Syncing Phase = "syncing"
	// Synced: the local copy follows the API server.
	Synced Phase = "synced"
	// Failing: the API server refuses to list or watch, or cannot be reached. What was read before stays readable.
	Failing Phase = "failing"
	// Stopped: the cache has run. What was read before stays readable, and grows old.
	Stopped Phase = "stopped"
)

// InformerState is where one informer stands, and since when. Where a handle has several informers, it is the worst phase of
// theirs and the sum of their numbers.
type InformerState struct {
	// Kind is the informer's kind, in the form Kind.version.group.
	Kind string
	// Scope says what of the kind is kept, and in which form; empty for all objects in their usual form.
	Scope string
	// Phase is where it stands.
	Phase Phase
	// Since is when it came there.
	Since time.Time
	// Err is why it is Waiting or Failing, else nil.
	Err error

	// Lists and Watches count the initial lists that were read to their end, streamed ones included, and the watches that were
	// opened. More than one list means that a watch could not go on where it had ended.
	Lists, Watches int64
	// Quiet counts the watches that were given up because nothing came for 3 minutes, not even a bookmark; or for 30 seconds
	// before the initial list was complete.
	Quiet int64
	// ResourceVersion is how far the local copy has come; empty if that is not known.
	ResourceVersion string
	// Broken names objects that do not fit their Go type, of which the copy keeps the last state that did fit, if there was one;
	// and objects that the scope's transform panicked over, which are kept as it left them. Each with the reason; at most 10 of
	// them, BrokenCount of all.
	Broken      []string
	BrokenCount int

	// Objects counts the objects in the local copy, and Bytes estimates their size when serialized, from a sample. Both are
	// counted where somebody asks for a state; a hook is not told.
	Objects int
	Bytes   int64
}

// String says it in one line.
func (s InformerState) String() string {
	text := s.Kind
	if s.Scope != "" {
		text += " (" + s.Scope + ")"
	}
	text += ": " + string(s.Phase)
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	if s.Phase == NotStarted {
		text += ": its cache does not run yet"
	}
	if len(s.Broken) > 0 {
		text += fmt.Sprintf("; broken objects: %d, such as %s", s.BrokenCount, s.Broken[0])
	}
	return text
}

// Cache is what package cache reports.
type Cache struct {
	// Started is called when the cache begins to run.
	Started func(CacheStarted)
	// Stopped is called when all of its informers have stopped. It does not start again.
	Stopped func(CacheStopped)
	// InformerState is called when an informer begins to wait or fail, when the reason changes, and when it recovers: it is
	// then Syncing or Synced, without Err. It is not called when all goes well.
	InformerState func(InformerState)
	// BrokenObject is called for an object that does not fit its Go type, or that the transform panicked over: when it comes
	// first, when the reason changes, and after each initial list.
	BrokenObject func(kind, object string, err error)
}

// CacheStarted says that a cache runs.
type CacheStarted struct {
	// Of is the cache itself.
	Of any
	// Informers returns where each informer stands now, without its Bytes, in no particular order. It counts the objects, which
	// takes a walk over their names, and may be called from any goroutine.
	Informers func() []InformerState
}

// CacheStopped says that a cache has stopped.
type CacheStopped struct {
	// Of is the cache, as CacheStarted had it.
	Of any
}
