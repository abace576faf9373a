// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin

package envtest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
)

// supported returns an error, because E5 needs file locks and process groups.
func supported() error {
	return errors.New("envtest: a control plane can be started on linux and darwin only; here, set Options.Kubeconfig to use an existing cluster")
}

func isolate(*exec.Cmd)                           {}
func kill(p *os.Process)                          { _ = p.Kill() }
func interrupt(p *os.Process) error               { return p.Kill() }
func raise(os.Signal)                             {}
func lockFile(*os.File, bool, bool) (bool, error) { return false, supported() }
func checkOwner(fs.FileInfo) error                { return nil }
