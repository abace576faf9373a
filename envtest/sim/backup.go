// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// Backup is a copy of a Server's objects and of its newest resourceVersion. It does not change.
type Backup struct {
	server *Server
	backup *store.Backup
}

// Backup returns a copy of all objects.
func (s *Server) Backup() *Backup {
	s.store.Lock()
	defer s.store.Unlock()
	return &Backup{s, s.store.Backup()}
}

// Restore replaces all objects of the server by the backup's, as if a backup of etcd had been
// restored. The resourceVersions go back. All watches end, because the API servers must be
// restarted. No event reports the changes. A watch from a later version than the backup's sends
// events whose versions are past its own. A watch from an earlier version receives 410. UIDs do not
// repeat. A resource that was first served after the backup is empty.
func (b *Backup) Restore() {
	s := b.server
	s.store.Lock()
	defer s.store.Unlock()
	s.store.Restore(b.backup)
	s.controllers.Restart()
}
