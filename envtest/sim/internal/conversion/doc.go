// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package conversion converts objects between the versions of their kinds.
package conversion
