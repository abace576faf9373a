// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package tools pins the programs that develop Setpoint. It is a module of its own, so that nothing here reaches the
// users of the library; it stands outside go.work, so run its commands with GOWORK=off. The Makefile does.
package tools
