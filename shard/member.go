// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
	"github.com/setpoint-dev/setpoint/term"
)

// process is what the sessions of this process in the group have in common. It is safe for
// concurrent use.
type process struct {
	o           Options
	name        string // of the member's Lease
	identity    string // the holderIdentity there
	requests    requests
	owned       *owned.Table
	events      *events.Recorder // of the group's troubles; nil: none
	registry    *registry
	seenVersion atomic.Uint64 // the version of the newest record
	status      atomic.Pointer[Status]
}

// settings describes what all members must share.
func (p *process) settings() string {
	return fmt.Sprintf("format %d, %s", slots.Format, p.o.Partitioner)
}

// annotator writes the annotations that are on the member's Lease while a session holds it. The
// acquisition clears them.
type annotator struct{ process *process }

func (p annotator) Annotations(t term.Token) map[string]string {
	seen := ""
	if t.ResourceVersion != "" {
		seen = strconv.FormatUint(p.process.seenVersion.Load(), 10)
	}
	return map[string]string{sessionAnnotation: t.ResourceVersion, seenAnnotation: seen, settingsAnnotation: p.process.settings()}
}

// member is one session of this process in the group: the time for which it holds the member's
// Lease. The parts of the session share it. Only the goroutine of session.run uses it.
type member struct {
	*process

	id      slots.ID
	log     *slog.Logger
	view    *slots.View
	group   entry                // of the group's Lease, as the view has it
	spread  time.Duration        // so that not all members acquire a Lease at once
	leaving bool                 // it gives up its slots
	leaveBy time.Time            // if it leaves: when it stops slots that have no next owner
	failed  map[string]time.Time // when failing has logged a line
}

// see passes the newest record to the view, and reports whether there is one.
func (m *member) see() (news bool, err error) {
	m.group = m.registry.get(m.requests.group)
	if m.group.version == 0 || m.group.version == m.seenVersion.Load() {
		return false, nil
	}
	r, err := recordOf(m.group.lease, m.group.version)
	if err != nil {
		return true, err
	}
	err = m.view.See(r, time.Now())
	m.seenVersion.Store(r.Version)
	return true, err
}

// assignment returns the newest assignment, or nil if there is no valid one.
func (m *member) assignment() *slots.Assignment {
	a, _ := m.view.Assignment()
	return a
}

// joined reports whether the group has this member.
func (m *member) joined() bool {
	a := m.assignment()
	return a != nil && a.Joined(m.id)
}

// others returns the other sessions that may own slots.
func (m *member) others(a *slots.Assignment) (all []slots.ID) {
	all, _ = a.Recovering()
	for _, other := range a.Members() {
		all = append(all, other.ID)
	}
	return slices.DeleteFunc(all, func(id slots.ID) bool { return id.Name == m.id.Name })
}

// left is the time until this member may acquire the Lease of another one.
func (m *member) left(of entry) time.Duration { return m.registry.left(of) + m.spread }

// heartbeat is what the Lease of a member shows.
func (m *member) heartbeat(id slots.ID) slots.Heartbeat {
	if id == m.id {
		return slots.Heartbeat{Seen: m.seenVersion.Load()}
	}
	of := m.registry.get(id.Name)
	p := slots.Heartbeat{Seen: of.heartbeat.seen}
	if of.heartbeat.session != id.Term || time.Since(of.at) > m.registry.least*2/3 {
		p.Silent = of.at
	}
	return p
}

// failingEvery is the pause between equal lines about a request that fails each time.
const failingEvery = time.Minute

// failing logs a failed request that is retried, unless the session has ended meanwhile.
func (m *member) failing(ctx context.Context, msg string, args ...any) {
	if at, ok := m.failed[msg]; ctx.Err() != nil || ok && time.Since(at) < failingEvery {
		return
	}
	m.failed[msg] = time.Now()
	m.log.Warn(msg, args...)
}

const (
	// pollInterval is the longest pause between two looks at the group.
	pollInterval = time.Second
	// acquireRetry is the pause after a failed attempt to acquire a Lease.
	acquireRetry = 200 * time.Millisecond
)
