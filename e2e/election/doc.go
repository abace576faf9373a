// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package election has only scenarios: our electors and client-go's share Leases on a real control
// plane, hand over, lose their permissions, and write late.
package election
