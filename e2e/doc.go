// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the whole library against a real control plane with failures: kinds that
// appear late, disappear and return, revoked permissions, API server restarts, cut watches and
// refused selectors. It has tests only. Package election has the scenarios of electors.
//
// The outage harness (outage_test.go) kills kube-apiserver with SIGKILL while operators and their
// clients work, and compares every object afterwards. SETPOINT_FULL=1 makes 200 runs of each
// variant. These variables override that: SETPOINT_OUTAGE_RUNS, SETPOINT_OUTAGE_LANES (concurrent
// runs), SETPOINT_OUTAGE_KILLS, SETPOINT_OUTAGE_LAMPS and SETPOINT_OUTAGE_SEED. SETPOINT_RYW_ROUNDS
// is the number of rounds of the scenarios in ryw_failure_test.go.
//
//	SETPOINT_FULL=1 go test . -timeout 0 -ginkgo.timeout 4h -ginkgo.focus 'killed again'
//	SETPOINT_FULL=1 go test . -timeout 0 -ginkgo.focus 'while an informer fails'
//
// This module stands outside the workspace: its go commands need GOWORK=off.
package e2e
