//go:build !race

// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package storages

// race reports whether the race detector is on.
const race = false
