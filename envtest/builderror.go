// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

var (
	errNoGo        = errors.New("envtest: cannot build the control plane: there is no go command in PATH: install Go (https://go.dev/dl), or set " + programVariable + " to a control plane program built elsewhere")
	errInterrupted = errors.New("interrupted")
)

// goOutput takes what the go command writes to standard error: it counts what is downloaded and compiled, and keeps
// the rest for an error message.
type goOutput struct {
	report *progressReport
	tail   tail
	line   []byte
}

func (o *goOutput) Write(p []byte) (int, error) {
	for _, b := range p {
		if b != '\n' {
			o.line = append(o.line, b)
			continue
		}
		o.take(string(o.line))
		o.line = o.line[:0]
	}
	return len(p), nil
}

func (o *goOutput) take(line string) {
	if module, ok := strings.CutPrefix(line, "go: downloading "); ok {
		o.report.did(module)
		return
	}
	// go build -v: the path of a package, alone.
	if line != "" && !strings.ContainsAny(line, " :#\t") {
		o.report.did(line)
		return
	}
	_, _ = o.tail.Write([]byte(line + "\n"))
}

// String returns the last lines that were no progress.
func (o *goOutput) String() string {
	if len(o.line) > 0 {
		_, _ = o.tail.Write(append(o.line, '\n'))
		o.line = nil
	}
	return o.tail.String()
}

// causes are what go's output tells of, and what to do about it. The first match counts.
var causes = []struct {
	signs []string
	what  string
}{
	{[]string{"no space left on device", "disk quota exceeded"},
		"the disk is full: free some space, or set XDG_CACHE_HOME, GOCACHE and GOMODCACHE to directories on another disk"},
	{[]string{"requires go >=", "toolchain not available", "unknown directive: toolchain", "invalid go version"},
		"the go command is too old, or may not download a newer one: install the Go version named below, or unset GOTOOLCHAIN"},
	{[]string{"dial tcp", "dial unix", "no such host", "connection refused", "i/o timeout", "network is unreachable", "TLS handshake timeout", "proxyconnect", "connection reset by peer", "unexpected EOF"},
		"its modules cannot be downloaded: connect to the network, set GOPROXY to a module proxy that can be reached, or set " + programVariable + " to a control plane program built elsewhere"},
	{[]string{"module lookup disabled by GOPROXY=off", "cannot find module providing package"},
		"its modules are not there and may not be downloaded: unset GOPROXY and GOFLAGS, or set " + programVariable + " to a control plane program built elsewhere"},
	{[]string{"SECURITY ERROR", "checksum mismatch"},
		"a downloaded module is not what it should be: do not use it; see below"},
	{[]string{"unknown revision", "404 Not Found", "410 Gone", "403 Forbidden"},
		"the module proxy does not have one of its modules: set GOPROXY to one that does, or set " + programVariable + " to a control plane program built elsewhere"},
	{[]string{"permission denied", "read-only file system"},
		"a directory cannot be written: set XDG_CACHE_HOME, GOCACHE and GOMODCACHE to directories that can be"},
	{[]string{"cannot allocate memory", "signal: killed", "out of memory"},
		"there is not enough memory: about 2 GB are needed; set GOFLAGS=-p=1 to use less"},
}

// buildError says in one sentence why a build failed and what to do, followed by what go wrote.
func buildError(err error, output string) error {
	if errors.Is(err, exec.ErrNotFound) {
		return errNoGo
	}
	if output == "" {
		output = err.Error()
	}
	what := fmt.Sprintf("go says so below (%v)", err)
	for _, c := range causes {
		if containsAny(output, c.signs) || c.what == causes[0].what && errors.Is(err, syscall.ENOSPC) {
			what = c.what
			break
		}
	}
	return &buildFailure{what: what, output: output, err: err}
}

// buildFailure keeps the cause for errors.Is.
type buildFailure struct {
	what, output string
	err          error
}

func (f *buildFailure) Error() string {
	return "envtest: cannot build the control plane: " + f.what + "\n  " + strings.ReplaceAll(f.output, "\n", "\n  ")
}

func (f *buildFailure) Unwrap() error { return f.err }

func containsAny(s string, signs []string) bool {
	for _, sign := range signs {
		if strings.Contains(s, sign) {
			return true
		}
	}
	return false
}
