// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package tools pins the programs that develop Setpoint. It is a separate module, so that its
// dependencies do not reach the users of the library. It is outside go.work, so run its commands
// with GOWORK=off. The Makefile does.
package tools
