// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package guides has the code of the guides in docs/. A test compares each block of the guides with
// these files, so all of it is compiled; the tests here run it against a real API server.
package guides
