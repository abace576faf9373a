// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/hook"
)

// State is where a source stands.
type State struct {
	// Source names it.
	Source string
	// Phase is where it stands. A source is Synced when everything that there was at the start has been handled.
	Phase hook.Phase
	// Err is why it is Waiting or Failing, else nil.
	Err error
	// Note is what else is to be said, such as what the source cannot know of itself; mostly empty.
	Note string
	// Pending counts the events that have come and are not handled yet, those of Retrying included. Kind and Informer do not
	// know those that wait in the informer, so that it is Retrying there.
	Pending int
	// Retrying counts the events whose handler or filter has failed, and that will be tried again.
	Retrying int
	// Failure is the last error of the handler, while events are Retrying.
	Failure error
	// Dropped counts, since the start and by reason, what was not delivered: the names of filters, for instance.
	Dropped map[string]int64
}

// MarshalJSON has errors as text.
func (s State) MarshalJSON() ([]byte, error) {
	type plain State
	return json.Marshal(struct {
		plain

		Err     string `json:",omitempty"`
		Failure string `json:",omitempty"`
	}{plain(s), textOf(s.Err), textOf(s.Failure)})
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// String says it in one line.
func (s State) String() string {
	text := s.Source + ": " + string(s.Phase)
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	if s.Note != "" {
		text += "; " + s.Note
	}
	if s.Pending > s.Retrying {
		text += fmt.Sprintf("; %s pending", events(s.Pending-s.Retrying))
	}
	if s.Retrying > 0 {
		text += fmt.Sprintf("; the handler has failed for %s, to be tried again", events(s.Retrying))
		if s.Failure != nil {
			reason, _, _ := strings.Cut(s.Failure.Error(), "\n") // without the stack
			text += ": " + reason
		}
	}
	if len(s.Dropped) > 0 {
		var dropped []string
		for _, reason := range slices.Sorted(maps.Keys(s.Dropped)) {
			dropped = append(dropped, fmt.Sprintf("%d (%s)", s.Dropped[reason], reason))
		}
		text += "; dropped: " + strings.Join(dropped, ", ")
	}
	return text
}

func events(n int) string {
	if n == 1 {
		return "1 event"
	}
	return fmt.Sprintf("%d events", n)
}

// drops counts what was not delivered, by reason.
type drops struct {
	reasons []string
	counts  []atomic.Int64
}

func newDrops(reasons ...string) *drops {
	return &drops{reasons: reasons, counts: make([]atomic.Int64, len(reasons))}
}

// snapshot returns what is not 0. Reasons of the same name are added up.
func (d *drops) snapshot() map[string]int64 {
	dropped := map[string]int64{}
	for i, reason := range d.reasons {
		if n := d.counts[i].Load(); n > 0 {
			dropped[reason] += n
		}
	}
	return dropped
}
