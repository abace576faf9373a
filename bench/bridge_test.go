// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// asProgram in the environment makes the test binary the program.
const asProgram = "SETPOINT_BENCH_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// tablesOf runs the program in another process, with registries of its own, and returns its tables.
func tablesOf(t *testing.T, args ...string) []table {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(ctx, self, append(args, "-json", file)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r.Tables
}

// TestBridgeReads lets all contestants read each kind in one round.
func TestBridgeReads(t *testing.T) {
	tables := tablesOf(t, "-only", "bridge", "-bridge", "reads", "-rounds", "1")
	if len(tables) != 1 || len(tables[0].Rows) != len(bridgeReads) {
		t.Fatalf("the tables are %v, want one with %d rows", tables, len(bridgeReads))
	}
	for _, row := range tables[0].Rows {
		if want := 1 + 2*len(bridgeContestants) + 2; len(row) < want {
			t.Errorf("a row has %d cells, want at least %d: %v", len(row), want, row)
		}
	}
}
