// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
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

// goTest compiles and runs tests of packages in a tree.
type goTest struct {
	tree    string
	timeout time.Duration
}

// A report is the result of one run of tests.
type report struct {
	failed  bool              // the package as a whole: a test, a leak, a panic or a timeout
	timeout bool              // why it failed
	reached bool              // the mutant's code ran; false if it has a program of its own
	tests   map[string]string // by name: pass, fail, skip, or run if it did not end
	output  string
}

// compile compiles the tests of a package. The text is empty, or what the compiler says.
func (g goTest) compile(ctx context.Context, dir string) (text string, err error) {
	module, pkg := g.module(dir)
	// Vet is for the unchanged code. Without debug information, the linker takes half the time.
	text, err = g.command(ctx, module, module, "_c", 0, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o="+g.binary(dir), pkg)
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return text, nil
	}
	return "", err
}

// binary returns the path of a package's compiled tests.
func (g goTest) binary(dir string) string {
	return filepath.Join(g.tree, "_bin", strings.ReplaceAll(path.Clean(dir), "/", "+")+".test")
}

// mark returns the path of the file that a mutant creates when it runs.
func (g goTest) mark(mutant int) string {
	return filepath.Join(g.tree, "_bin", fmt.Sprintf("%d.ran", mutant))
}

// run runs the compiled tests of a package that match the pattern, in the worker's own directory
// for temporary files. Mutant 0 is the unchanged code.
func (g goTest) run(ctx context.Context, worker int, dir, pattern string, mutant int) (report, error) {
	module, _ := g.module(dir)
	// The test program ends itself in time if it can.
	limited, cancel := context.WithTimeout(ctx, g.timeout+time.Minute)
	defer cancel()
	text, err := g.command(limited, module, dir, fmt.Sprintf("_%d", worker), mutant, "go", "tool", "test2json", g.binary(dir),
		"-test.v=test2json", "-test.paniconexit0", "-test.timeout="+g.timeout.String(), "-test.run="+pattern)
	if ctx.Err() != nil {
		return report{}, ctx.Err()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited && limited.Err() == nil {
		return report{}, err
	}
	r, parseErr := parseReport(text)
	if parseErr != nil {
		return report{}, fmt.Errorf("the tests in %s: %w\n%s", dir, parseErr, text)
	}
	r.failed = err != nil
	r.timeout = limited.Err() != nil || strings.Contains(r.output, "panic: test timed out after")
	_, statErr := os.Stat(g.mark(mutant))
	r.reached = statErr == nil
	return r, nil
}

// command runs a command of a module in a folder, and returns its output. The temporary files are
// removed even if a test is killed. Their folder has a short name: a control plane keeps sockets in
// it, whose paths have a limit.
func (g goTest) command(ctx context.Context, module, dir, tmp string, mutant int, name string, args ...string) (out string, err error) {
	workspace := "GOWORK=off"
	if g.inWorkspace(module) {
		workspace = "GOWORK="
	}
	tmp = filepath.Join(g.tree, tmp)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	env := []string{"SETPOINT_FULL=1", workspace, fmt.Sprintf("%s=%d", chosen, mutant), ran + "=" + g.mark(mutant)}
	text, err := child.Command(ctx, filepath.Join(g.tree, dir), tmp, env, name, args...).CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(text), err
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

// parseReport reads the output of test2json, and lines of other programs, such as go itself.
func parseReport(out string) (report, error) {
	r := report{tests: map[string]string{}}
	ended := map[string]string{} // a package may run its tests several times: see testkit/storages
	var output strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "{") {
			output.WriteString(line)
			continue
		}
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return r, err
		}
		switch e.Action {
		case "output":
			output.WriteString(e.Output)
		case "run":
			r.tests[e.Test] = e.Action
		case "pass", "fail", "skip":
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
