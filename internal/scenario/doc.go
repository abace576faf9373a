// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package scenario holds suites that show the library as a whole against a real control plane in trouble: kinds that come late,
// leave and return, rights that are revoked, an API server that restarts, watches that are cut. It has tests only. Those of
// electors are in package election.
//
// The outage harness (outage_test.go) kills kube-apiserver with SIGKILL while operators and their
// clients work, and compares every object afterwards. SETPOINT_FULL=1 makes 200 runs of each variant.
// These variables override that: SETPOINT_OUTAGE_RUNS, SETPOINT_OUTAGE_LANES (runs at once),
// SETPOINT_OUTAGE_KILLS, SETPOINT_OUTAGE_LAMPS and SETPOINT_OUTAGE_SEED. SETPOINT_RYW_ROUNDS is the
// number of rounds of the scenarios in ryw_failure_test.go.
//
//	SETPOINT_FULL=1 go test ./internal/scenario -timeout 0 -ginkgo.timeout 4h -ginkgo.focus 'killed again'
//	SETPOINT_FULL=1 go test ./internal/scenario -timeout 0 -ginkgo.focus 'while an informer fails'
package scenario
