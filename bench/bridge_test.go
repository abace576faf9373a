// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
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

// bridgeTable runs a small configuration of the program in another process, with registries of its
// own, and returns the cells by the beginning of their row's title.
func bridgeTable(t *testing.T, parts string) map[string][]string {
	t.Helper()
	self, err := os.Executable()
	testkit.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(ctx, self, "-only", "bridge", "-bridge", parts, "-rounds", "1", "-bridge-objects", "200",
		"-bridge-keys", "10", "-bridge-gets", "1000", "-bridge-limit", "8s", "-json", file)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	testkit.NoError(t, err)
	var r report
	testkit.NoError(t, json.Unmarshal(text, &r))
	if len(r.Tables) != 1 {
		t.Fatalf("there are %d tables, want 1", len(r.Tables))
	}
	rows := map[string][]string{}
	for _, row := range r.Tables[0].Rows {
		if len(row) < 1+len(bridgeContestants) {
			t.Errorf("a row has %d cells: %v", len(row), row)
		}
		rows[row[0]] = row[1:]
	}
	return rows
}

// TestBridge_Reads runs the part that needs neither a control plane nor much time.
func TestBridge_Reads(t *testing.T) {
	rows := bridgeTable(t, "reads")
	testkit.Len(t, rows, len(bridgeReads))
	for title, cells := range rows {
		for i, c := range bridgeContestants {
			if strings.HasPrefix(cells[i], "0 ") {
				t.Errorf("%s: %s has %q", title, c.name, cells[i])
			}
		}
	}
}

// TestBridge_Counts runs the others, and compares the counts that do not depend on time.
func TestBridge_Counts(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("set SETPOINT_FULL=1 to run it for two minutes, as make test-full does")
	}
	rows := bridgeTable(t, "duplicates,rate,stop,lease,memory")
	for title, want := range map[string][]string{ // "" is any
		"duplicates":                   {"", "0", "", "0"},
		"cut off by SIGTERM":           {"10", "10", "0", "0"},
		"Reconciles on an older cache": {"", "0.0/s, 0 writes refused", "", "0.0/s, 0 writes refused"},
		"writes of a leader that":      {"", "", "0, ", "0, "},
		"the same, of a leader":        {"0, ", "0, ", "0, ", "0, "},
		"live heap":                    {"", "", "", ""},
	} {
		found := false
		for row, cells := range rows {
			if !strings.HasPrefix(row, title) {
				continue
			}
			found = true
			for i, c := range bridgeContestants {
				if want[i] != "" && !strings.HasPrefix(cells[i], want[i]) {
					t.Errorf("%s: %s has %q, want %q", row, c.name, cells[i], want[i])
				}
			}
		}
		testkit.Equal(t, found, true, fmt.Sprintf("there is no row %q in %v", title, rows))
	}
}
