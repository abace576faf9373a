// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// AddRecorder adds a recorder, before or during Run; events.For calls it. Run runs it. It flushes
// the recorder before it releases a Lease, for at most 2 seconds, and closes it before it returns,
// within the grace time.
func (m *Manager) AddRecorder(r term.Recorder) {
	switch rs := m.registry.recorders; {
	case argument.IsNil(r):
		m.report.failed(errors.New("AddRecorder: the recorder is nil; events.For makes one"))
	case slices.Contains(rs.current(), r):
		m.report.failed(errors.New("AddRecorder: the recorder was added before; events.For adds it already"))
	case !m.registry.tooLate("a recorder"):
		rs.mu.Lock()
		defer rs.mu.Unlock()
		rs.addLocked(r)
	}
}

// FlushEvents sends what all recorders have recorded before the call. It retries until ctx is done,
// and then returns an error. Tests call it before they look for events.
func (m *Manager) FlushEvents(ctx context.Context) error {
	return m.registry.recorders.flush(ctx)
}

type recorders struct{ starter[term.Recorder] }

// flush flushes all recorders at once, so that one that waits delays no other.
func (rs *recorders) flush(ctx context.Context) error {
	all := rs.current()
	wrong := make([]error, len(all))
	var flushing sync.WaitGroup
	for i, r := range all {
		flushing.Go(func() {
			defer run.Recover(&wrong[i])
			wrong[i] = r.Flush(ctx)
		})
	}
	flushing.Wait()
	return errors.Join(wrong...)
}

// run closes the recorder before late ends.
func (rs *recorders) run(ctx, late context.Context, r term.Recorder, report *report) error {
	err := rs.send(ctx, r)
	if lost := r.Close(late); lost != nil {
		report.logger().Warn("some events are lost", "err", lost)
	}
	return err
}

func (rs *recorders) send(ctx context.Context, r term.Recorder) (err error) {
	defer run.Recover(&err)
	return r.Run(ctx)
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
		if err := l.registry.recorders.flush(limited); err != nil {
			e.logger().Warn("not all events of the term were sent before its end", "err", err)
		}
		return nil
	})
	<-limited.Done()
}
