// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/tools/internal/child/childtest"
)

func TestMain(m *testing.M) { childtest.Main(m, main) }

// fixture returns a folder with the module file of a library, and the files.
func fixture(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files["go.mod"] = "module " + library + "\n\ngo 1.26.0\n"
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestStress_ShowsTheRunsThatFail(t *testing.T) {
	root := fixture(t, map[string]string{
		"sound/sound_test.go": "package sound\n\nimport \"testing\"\n\nfunc TestSound(t *testing.T) {}\n",
		"flaky/flaky_test.go": `package flaky

import (
	"os"
	"runtime"
	"testing"
)

func TestFlaky(t *testing.T) {
	if err := os.WriteFile(os.TempDir()+"/left", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if runtime.GOMAXPROCS(0) == 2 {
		t.Error("two")
	}
}
`,
		"envtest/envtest.go":      "package envtest\n",
		"slow/slow_test.go":       "package slow\n\nimport (\n\t_ \"" + library + "/envtest\"\n\t\"testing\"\n)\n\nfunc TestSlow(t *testing.T) {}\n",
		"none/none.go":            "package none\n",
		"e2e/go.mod":              "module " + library + "/e2e\n\ngo 1.26.0\n",
		"e2e/e_test.go":           "package e2e\n\nimport \"testing\"\n\nfunc TestE(t *testing.T) {}\n",
		"examples/lone/go.mod":    "module " + library + "/examples/lone\n\ngo 1.26.0\n",
		"examples/lone/l_test.go": "package lone\n\nimport \"testing\"\n\nfunc TestLone(t *testing.T) {}\n",
	})
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var out, errs bytes.Buffer
	status := stress(t.Context(), []string{"-root", root, "-runs", "4", "-race", "0", "-light", "3", "-seed", "100", "-timeout", "1m"}, &out, &errs)
	if status != exitFailed || errs.Len() > 0 {
		t.Errorf("status %d, %s", status, &errs)
	}
	for _, want := range []string{
		"=== FAILED ./flaky after ", "exit status 1: TestFlaky\n", "two", "-test.shuffle 105",
		"again: cd ./flaky && GOWORK=off GOMAXPROCS=2 go test -count=1 -timeout=1m0s -shuffle=105 .",
		"\n./flaky ", "  TestFlaky ×1\n", "\n./sound ", "\n./e2e ", "\n./examples/lone ", "\n18 runs, 1 failed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("it left %q behind, %v", left, err)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestStress_BeginsNoRunWhenTheTimeIsUp(t *testing.T) {
	root := fixture(t, map[string]string{"sound/sound_test.go": "package sound\n\nimport \"testing\"\n\nfunc TestSound(t *testing.T) {}\n"})
	var out, errs bytes.Buffer
	status := stress(t.Context(), []string{"-root", root, "-runs", "5", "-race", "0", "-for", "0s"}, &out, &errs)
	if status != exitOK || !strings.Contains(out.String(), "0 runs, 0 failed, 5 left out for lack of time\n") {
		t.Errorf("status %d, %s\n%s", status, &errs, &out)
	}
}

func TestPlan_BeginsEachRoundWithTheFirstPackage(t *testing.T) {
	packages, files := []pkg{{name: "a"}, {name: "b", cluster: true}, {name: "c"}}, make([]string, 3)
	for first, want := range map[int]string{0: "abcac", 1: "bcaca", 2: "cabca", 4: "bcaca"} {
		o := options{first: first, light: 2, procs: []int{1}}
		got := ""
		for _, r := range o.plan(packages, files, 2, false) {
			got += r.name
		}
		if got != want {
			t.Errorf("-first %d: the runs are %s, want %s", first, got, want)
		}
	}
}

func TestStress_Errors(t *testing.T) {
	broken := fixture(t, map[string]string{"a/a_test.go": "package a\n\nfunc\n"})
	for args, want := range map[string]string{
		"-procs 1,0":           "-procs 1,0",
		"-packages (":          "-packages",
		"-light 0":             "must be positive",
		"-first -1":            "-first -1: it must not be negative",
		"-runs -1":             "must not be negative",
		"more":                 "unknown argument",
		"-root " + broken:      "a_test.go",
		"-root " + t.TempDir(): "go list",
	} {
		var errs bytes.Buffer
		if status := stress(t.Context(), strings.Fields(args), io.Discard, &errs); status != exitError || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: status %d, %q", args, status, &errs)
		}
	}
}

// A signal ends the running tests with their children, and removes all files.
func TestStress_Signals(t *testing.T) {
	childtest.Signals(t, exitInterrupted, func(t *testing.T) (dir string, args []string) {
		t.Helper()
		root := fixture(t, map[string]string{"hang/hang_test.go": childtest.Hanging})
		return root, strings.Fields("-runs 2 -race 0 -hogs 1 -jobs 1 -root " + root)
	})
}
