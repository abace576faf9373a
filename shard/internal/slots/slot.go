// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

// Slots is the number of slots of every group. It never changes while a group has members.
const Slots = 256

// Slot is one of the parts into which a group divides its keys, from 0 to Slots-1.
type Slot = uint8
