// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/tools/internal/child"
)

// goTest runs tests of packages in a tree.
type goTest struct {
	tree    string
	timeout time.Duration
}

// A report is the result of one run of go test.
type report struct {
	built  bool
	failed bool              // the package as a whole: a test, a leak, a panic or a timeout
	tests  map[string]string // by name: pass, fail, skip, or run if it did not end
	output string
}

// run runs the tests in the package that match the pattern.
func (g goTest) run(ctx context.Context, dir, pattern string) (report, error) {
	module, pkg := g.module(dir)
	// -vet=off: a vet error in the changed line is not a failed test. Without debug information,
	// the linker takes half the time.
	workspace := "GOWORK=off"
	if g.inWorkspace(module) {
		workspace = "GOWORK="
	}
	// It is removed with the tree, even if a test is killed. The name is short: a control plane
	// keeps sockets in it, whose paths have a limit.
	tmp := filepath.Join(g.tree, "_tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return report{}, err
	}
	defer os.RemoveAll(tmp)
	cmd := child.Command(ctx, filepath.Join(g.tree, module), tmp, []string{"SETPOINT_FULL=1", workspace},
		"go", "test", "-json", "-vet=off", "-ldflags=-s -w", "-count=1", "-timeout="+g.timeout.String(), "-run="+pattern, pkg)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if ctx.Err() != nil {
		return report{}, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return report{}, err
	}
	r, parseErr := parseReport(stdout)
	if parseErr != nil {
		return report{}, fmt.Errorf("go test in %s: %w\n%s", dir, parseErr, stderr.String())
	}
	r.failed = err != nil
	r.output += stderr.String()
	return r, nil
}

// module returns the module that contains a package, and the package relative to it.
func (g goTest) module(dir string) (module, pkg string) {
	module = path.Clean(dir)
	for module != "." {
		if _, err := os.Stat(filepath.Join(g.tree, module, "go.mod")); err == nil {
			break
		}
		module = path.Dir(module)
	}
	if module == "." {
		return ".", "./" + path.Clean(dir)
	}
	return module, "./" + strings.TrimPrefix(strings.TrimPrefix(path.Clean(dir), module), "/")
}

// inWorkspace reports whether a module needs the workspace to find the library.
func (g goTest) inWorkspace(module string) bool {
	text, err := os.ReadFile(filepath.Join(g.tree, "go.work"))
	return err == nil && module != "." && regexp.MustCompile(`(?m)^\s*(use )?\./`+regexp.QuoteMeta(module)+`$`).Match(text)
}

func parseReport(stdout []byte) (report, error) {
	r := report{built: true, tests: map[string]string{}}
	ended := map[string]string{} // a package may run its tests several times: see internal/testkit
	var output strings.Builder
	for dec := json.NewDecoder(bytes.NewReader(stdout)); dec.More(); {
		var e struct{ Action, Test, Output, FailedBuild string }
		if err := dec.Decode(&e); err != nil {
			return r, err
		}
		switch e.Action {
		case "output", "build-output":
			output.WriteString(e.Output)
		case "build-fail":
			r.built = false
		case "run":
			r.tests[e.Test] = e.Action
		case "pass", "fail", "skip":
			if e.FailedBuild != "" {
				r.built = false
			}
			before := ended[e.Test]
			if before != "fail" && (before != "pass" || e.Action == "fail") {
				before = e.Action
			}
			ended[e.Test], r.tests[e.Test] = before, before
		}
	}
	delete(r.tests, "") // the package
	r.output = output.String()
	return r, nil
}

// pattern returns the -run pattern of exactly one test, which may be a subtest.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}
