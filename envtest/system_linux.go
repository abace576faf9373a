// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill cmd if this process is killed during a build. The kernel acts
// when the thread that started cmd ends; the Go runtime ends only locked threads before the
// process.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
