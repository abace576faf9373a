// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

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

// InformerState is where one informer stands, and since when.
type InformerState struct {
	// Kind is the informer's kind, in the form Kind.version.group.
	Kind string
	// Phase is where it stands.
	Phase Phase
	// Since is when it came there.
	Since time.Time
	// Err is why it is Waiting or Failing, else nil.
	Err error
}

// String says it in one line.
func (s InformerState) String() string {
	text := s.Kind + ": " + string(s.Phase)
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	return text
}

// Cache is what package cache reports.
type Cache struct {
	// InformerState is called when an informer begins to wait or fail, when the reason changes, and when it recovers: it is
	// then Syncing or Synced, without Err. It is not called when all goes well.
	InformerState func(InformerState)
}
