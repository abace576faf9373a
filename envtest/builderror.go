// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"cmp"
	"errors"
	"os/exec"
	"slices"
	"strings"
)

var (
	errNoGo        = errors.New("envtest: cannot build the control plane: there is no go command in PATH; install Go (https://go.dev/dl), or set " + programVariable + " to a control plane program built elsewhere")
	errInterrupted = errors.New("interrupted")
)

const elsewhere = "or set " + programVariable + " to a control plane program built elsewhere"

// causes are tried in order. The error quotes the line that matches.
var causes = []struct {
	signs        []string
	what, remedy string
}{
	{[]string{"no space left on device", "disk quota exceeded"},
		"the disk is full", "free 4 GB, or set XDG_CACHE_HOME, GOCACHE and GOMODCACHE to directories on another disk"},
	{[]string{"requires go >=", "toolchain not available", "unknown directive: toolchain", "invalid go version"},
		"the go command is too old, or may not download a newer one", "install the Go that it asks for, or unset GOTOOLCHAIN"},
	{[]string{"dial tcp", "dial unix", "no such host", "connection refused", "i/o timeout", "network is unreachable", "TLS handshake timeout", "proxyconnect", "connection reset by peer", "unexpected EOF"},
		"its modules cannot be downloaded", "connect to the network, set GOPROXY to a module proxy that can be reached, " + elsewhere},
	{[]string{"module lookup disabled by GOPROXY=off", "cannot find module providing package"},
		"its modules are not there and may not be downloaded", "unset GOPROXY and GOFLAGS, " + elsewhere},
	{[]string{"SECURITY ERROR", "checksum mismatch"},
		"a downloaded module is not what it should be", "do not use it, find out who changed it, and empty the module cache with go clean -modcache"},
	{[]string{"unknown revision", "404 Not Found", "410 Gone", "403 Forbidden"},
		"the module proxy does not have one of its modules", "set GOPROXY to one that does, " + elsewhere},
	{[]string{"permission denied", "read-only file system"},
		"a directory cannot be written", "set XDG_CACHE_HOME, GOCACHE and GOMODCACHE to directories that can be"},
	{[]string{"cannot allocate memory", "signal: killed", "out of memory"},
		"there is not enough memory", "provide 2 GB, or set GOFLAGS=-p=1 to need less"},
}

func buildError(err error, output string) error {
	if errors.Is(err, exec.ErrNotFound) {
		return errNoGo
	}
	output = cmp.Or(output, err.Error())
	for _, c := range causes {
		for line := range strings.Lines(output) {
			if slices.ContainsFunc(c.signs, func(sign string) bool { return strings.Contains(line, sign) }) {
				return &buildFailure{text: c.what + " (" + strings.TrimSpace(line) + "); " + c.remedy, err: err}
			}
		}
	}
	return &buildFailure{text: "go failed (" + err.Error() + "); fix what it reports and start again\n  " + strings.ReplaceAll(output, "\n", "\n  "), err: err}
}

type buildFailure struct {
	text string
	err  error
}

func (f *buildFailure) Error() string { return "envtest: cannot build the control plane: " + f.text }
func (f *buildFailure) Unwrap() error { return f.err }
