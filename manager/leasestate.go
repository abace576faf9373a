// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

// LeaseState describes a Lease of leader election, as this replica sees it.
type LeaseState struct {
	Lease    string // its namespace and name
	Identity string // of this replica
	// Leader is the identity that was seen last as the holder, or empty.
	Leader string
	// Trouble is why the Lease cannot be used now, or empty.
	Trouble string
}

// Leases returns the Leases of leader election, for package debug. The Leases of a Group's members
// are not among them: see [Manager.Group].
func (m *Manager) Leases() (all []LeaseState) {
	for _, e := range m.leases.elected() {
		if e.members != nil {
			continue
		}
		s := LeaseState{Lease: e.String(), Identity: e.Identity()}
		if leader := e.leader.Load(); leader != nil {
			s.Leader = *leader
		}
		if trouble := e.trouble.Load(); trouble != nil {
			s.Trouble = (*trouble).Error()
		}
		all = append(all, s)
	}
	return all
}
