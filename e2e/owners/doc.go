// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package owners tests that clients who share an object lose nothing of each other.
package owners
