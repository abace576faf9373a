// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import "github.com/setpoint-dev/setpoint/hook"

// SetElector replaces the elector of Options.LeaderElection.
func SetElector(m *Manager, e elector) { m.main.elector = e }

// LeaseHooks returns the manager's hooks of Options.LeaderElection.
func LeaseHooks(m *Manager) *hook.LeaderElection { return m.main.log() }
