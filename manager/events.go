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
//
// It writes to the manager's own cluster, also about an object of a further one. That is of use
// only if the object's namespace exists there, too: otherwise the events are dropped. For events in
// the cluster of the object, make a recorder with events.New(cluster.Client(), …). Run it with
// AddEverywhere, and close it when its Run has returned.
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

// flushEvents sends the events of a term, as long as its work may go on. Without an elector there
// is no term, and record sends the events later.
func (l *Lease) flushEvents(work context.Context) {
	if l.elector == nil {
		return
	}
	if err := l.roster.recorder.Flush(work); err != nil {
		l.logger().Warn("not all events of the term were sent", "err", err)
	}
}
