// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/term"
)

// AddRecorder adds a recorder, before or during Run; events.For calls it. Run runs it. It flushes
// the recorder before it releases a Lease, for at most 2 seconds, and closes it before it returns,
// within the grace time.
func (m *Manager) AddRecorder(r term.Recorder) {
	if m.registry.tooLate("a recorder") {
		return
	}
	rs := m.registry.recorders
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.addLocked(r)
}

// FlushEvents sends what all recorders have recorded before the call. It retries until ctx is done,
// and then returns an error. Tests call it before they look for events.
func (m *Manager) FlushEvents(ctx context.Context) error {
	var wrong []error
	for _, r := range m.registry.recorders.current() {
		wrong = append(wrong, r.Flush(ctx))
	}
	return errors.Join(wrong...)
}

type recorders struct{ starter[term.Recorder] }

func (rs *recorders) current() []term.Recorder {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return append([]term.Recorder(nil), rs.all...)
}

// run closes the recorder before late ends.
func (rs *recorders) run(ctx, late context.Context, r term.Recorder, report *report) error {
	if err := r.Run(ctx); err != nil {
		return err
	}
	if err := r.Close(late); err != nil {
		report.logger().Warn("some events are lost", "err", err)
	}
	return nil
}

// flushLimit is how long the events of a term may delay the release of its Lease. Those that wait
// are sent after it.
const flushLimit = 2 * time.Second

// flushEvents does nothing without an Elector: there is no term, and recorders.run sends the events
// later. It does not wait for a request that ignores its context.
func (l *Lease) flushEvents(term *stage, work context.Context) {
	e, ok := l.leadership.(*elected)
	if !ok {
		return
	}
	limited, cancel := context.WithTimeout(work, flushLimit)
	term.run("sending the events of "+l.leads, nil, func(context.Context) error {
		defer cancel()
		var flushing sync.WaitGroup
		for _, r := range l.registry.recorders.current() {
			flushing.Go(func() {
				if err := r.Flush(limited); err != nil {
					e.logger().Warn("not all events of the term were sent before its end", "err", err)
				}
			})
		}
		flushing.Wait()
		return nil
	})
	<-limited.Done()
}
