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

// State describes a source at one moment.
type State struct {
	Source string // its name; a Status of another package's source does not know it
	// Phase is Synced once the handler has seen everything that existed at the start.
	Phase hook.Phase
	// Err is the reason for the phases Waiting and Failing.
	Err error
	// Note describes broken objects.
	Note string
	// Pending counts the events that are not handled yet: those that the handler works on, the
	// Retrying ones, and those that wait because the handler is busy.
	Pending int
	// Retrying counts the events whose handler or predicate failed.
	Retrying int
	// Failure is the handler's last error while Retrying is not 0.
	Failure error
	// Dropped counts events that were not delivered, by reason, such as a predicate.
	Dropped map[string]int64
}

// MarshalJSON encodes errors as text.
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

// String returns the state in one line.
func (s State) String() string {
	text := strings.TrimPrefix(s.Source+": "+string(s.Phase), ": ")
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
		text += fmt.Sprintf("; the handler failed for %s, to be retried", events(s.Retrying))
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

type drops struct {
	reasons []string
	counts  []atomic.Int64
}

func newDrops(reasons ...string) *drops {
	return &drops{reasons: reasons, counts: make([]atomic.Int64, len(reasons))}
}

// snapshot adds up reasons of the same name.
func (d *drops) snapshot() map[string]int64 {
	dropped := map[string]int64{}
	for i, reason := range d.reasons {
		if n := d.counts[i].Load(); n > 0 {
			dropped[reason] += n
		}
	}
	return dropped
}
