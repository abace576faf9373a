// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"

	"github.com/setpoint-dev/setpoint/events"
)

// Recorder returns the manager's recorder of Kubernetes events. Each call returns the same one,
// before Run and during Run. Run sends the events of a term before it releases the Lease, and all
// other events before it returns, within the grace time.
func (m *Manager) Recorder() *events.Recorder { return m.roster.recorder }

// newRecorder makes the recorder. The main Lease exists already, so that its identity is known.
func (m *Manager) newRecorder() *events.Recorder {
	return events.New(m.client, events.Options{Name: m.o.Name, Instance: m.leases.sameIdentity(""), Hooks: m.o.Hooks.Events})
}

// record sends events until ctx is done, and then what is left until late is done.
func (m *Manager) record(ctx, late context.Context) error {
	if err := m.roster.recorder.Run(ctx); err != nil {
		return err
	}
	if err := m.roster.recorder.Close(late); err != nil {
		m.report.logger().Warn("some events are lost", "err", err)
	}
	return nil
}

// flushEvents sends the events of a term, as long as its work may go on.
func (l *Lease) flushEvents(work context.Context) {
	if err := l.roster.recorder.Flush(work); err != nil {
		l.logger().Warn("not all events of the term were sent", "err", err)
	}
}
