// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package scenario holds suites that show the library as a whole against a real control plane in trouble: kinds that come late,
// leave and return, rights that are revoked, an API server that restarts, watches that are cut. It has tests only.
package scenario
