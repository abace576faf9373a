// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package election has no code, only scenarios: electors of ours and of client-go share Leases on a
// real control plane, and hand over, lose their rights, and write late.
package election
