// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the system kill cmd when we are killed during a build. It is a second means: the pipe breaks too.
// The system does so when the thread that started cmd ends, which the Go runtime lets happen only to a locked one.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
