// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"path/filepath"
	"testing"

	"github.com/setpoint-dev/setpoint/tools/internal/child/childtest"
)

func TestMain(m *testing.M) { childtest.Main(m, main) }

// A signal removes the copy of the work tree and ends the running test.
func TestSignals(t *testing.T) {
	childtest.Signals(t, 2, func(t *testing.T) (dir string, args []string) {
		t.Helper()
		root := repository(t)
		write(t, filepath.Join(root, "hang", "hang_test.go"), childtest.Hanging)
		write(t, filepath.Join(root, "docs", "mutations.txt"), "G1 hang TestHang\nin: sum Of\n- return a + b\n+ return a - b\n")
		return root, nil
	})
}
