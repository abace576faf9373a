// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"time"
)

// Phase is the condition of an informer.
type Phase string

const (
	// NotStarted: the cache does not run yet.
	NotStarted Phase = "not started"
	// Waiting: the API server does not serve the kind yet.
	Waiting Phase = "waiting for its API"
	// Syncing: the initial list is in progress.
	Syncing Phase = "syncing"
	// Synced: the local copy follows the API server.
	Synced Phase = "synced"
	// Failing: a list or a watch fails. The store keeps its objects, and they stay readable.
	Failing Phase = "failing"
	// Stopped: the cache has stopped. The store keeps its objects, but they are stale.
	Stopped Phase = "stopped"
)

// InformerState describes one informer. For a handle with several it has the worst of their phases
// and the sums of their counts. It is an event when an informer begins to wait or fail, when the
// reason changes, and when it recovers. After a recovery the phase is Syncing or Synced, and Err is
// nil.
type InformerState struct {
	// Kind has the form Kind.version.group, such as Deployment.v1.apps.
	Kind string
	// Scope describes the limits (namespaces, names, selectors) and the form of the objects. It is
	// empty for all objects in their usual form.
	Scope string
	// Selection is Scope without the cluster, namespace, name and storage. The informers of a
	// handle have it in common.
	Selection string
	// Phase began at Since.
	Phase Phase
	Since time.Time
	// Err is the reason of Waiting or Failing, otherwise nil.
	Err error

	// Lists counts the complete initial lists, and Watches the watches that were opened. A second
	// list means that a watch could not be resumed.
	Lists, Watches int64
	// Quiet counts the watches that were closed because they sent nothing, not even a bookmark. The
	// limit is 3 minutes, and 30 seconds before the initial list is complete.
	Quiet int64
	// ResourceVersion is the newest version in the store, or empty if unknown.
	ResourceVersion string
	// Broken names some objects with an error, each with its reason:
	//
	//   - An object that does not fit its Go type. Reads return an error for it. A packed object
	//     counts once a read or an event has decoded it.
	//   - An object whose transform failed. The store has it as the transform left it.
	//
	// It lists at most 10 of each. BrokenCount counts all.
	Broken      []string
	BrokenCount int

	// Objects counts the objects in the store. Bytes estimates their size from a sample: the kept
	// bytes of packed objects, else the size as JSON, which is not the memory that they take. Both
	// are 0 in an event.
	Objects int
	Bytes   int64
	// Storage is "decoded" or "packed". It is empty for an adopted informer, whose form is unknown.
	Storage string
	// Slots describes which slots an informer keeps, such as "keeps 52 of 256 slots". It is empty
	// if it keeps all objects of its scope.
	Slots string
	// Decodes counts how often a packed object was decoded, for reads, events and indexes.
	Decodes int64
}

// String returns the kind, the scope, the phase, the slots, the error and one broken object.
func (s InformerState) String() string {
	text := s.Kind
	if s.Scope != "" {
		text += " (" + s.Scope + ")"
	}
	text += ": " + string(s.Phase)
	if s.Slots != "" {
		text += ", " + s.Slots
	}
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

// CacheStarted reports that Run of a cache begins.
type CacheStarted struct {
	// Of is the *cache.Cache.
	Of any
	// Informers returns the state of each informer, in no particular order. It has Bytes only for
	// packed objects. A count of more than 10,000 objects may be a minute old, because it walks
	// over all names. Informers is safe for concurrent use.
	Informers func() []InformerState
}

// CacheStopped reports that all informers have stopped. A cache runs only once.
type CacheStopped struct {
	// Of is as in CacheStarted.
	Of any
}

// BrokenObject reports an object that InformerState.BrokenCount counts: the first time, when its
// error changes, and again in a new initial list.
type BrokenObject struct {
	Kind string
	// Object is its namespace and name.
	Object string
	Err    error
}

// Restored reports once that an API server was restored from a backup, or replaced. All kinds of
// the cache are then listed again. Until a kind has been, its phase is Failing, with the reason,
// and there is no InformerState.
type Restored struct {
	// Host is the API server.
	Host string
	// Kind is the kind whose informer has found it, Err what it has found.
	Kind string
	Err  error
	// Informers is the number of informers that list again, and Within the time until they begin.
	Informers int
	Within    time.Duration
}
