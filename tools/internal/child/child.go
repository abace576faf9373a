// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package child creates commands that leave nothing behind when they are cancelled.
package child

import (
	"context"
	"os"
	"os/exec"
	"time"
)

// Command returns a command that runs in the folder dir, with temporary files in the folder tmp.
// When ctx ends, the command is killed together with its child processes. Variables in env replace
// inherited ones.
func Command(ctx context.Context, dir, tmp string, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "TMPDIR="+tmp), env...)
	cmd.WaitDelay = 5 * time.Second // for a grandchild that holds the output open
	group(cmd)
	return cmd
}
