// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package request has the requests of clients: it parses them, reads their bodies and writes their
// answers.
package request
