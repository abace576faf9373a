// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// runIn runs a program in a container's file tree, as the user of the template's Dockerfile.
func runIn(t *testing.T, image, program string, args ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	if err := os.Chmod(image, 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: image, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "-kubeconfig") {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}
