// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"time"
)

// Options configure Start. The zero value finds or builds the control plane program and runs etcd
// and kube-apiserver.
type Options struct {
	// CRDs are files or directories for InstallCRDs. Default: none.
	CRDs []string

	// Version is the minor version of Kubernetes: "1.37", "1.36" or "1.35". Each is built once and
	// cached beside the others. It excludes Kubeconfig, UseKubebuilderAssets and the environment
	// variable SETPOINT_CONTROLPLANE, which have a version of their own. Default: the environment
	// variable SETPOINT_KUBERNETES, or else "1.37".
	Version string

	// Controllers also runs kube-controller-manager with the controllers for garbage collection,
	// namespaces, deployments, replica sets, jobs, service accounts and root CA config maps. A
	// deleted namespace then takes about 5 s to disappear. Without them, nothing is garbage
	// collected, namespaces stay Terminating, and pods need no service account. Default: false.
	Controllers bool

	// Kubeconfig is the path of a kubeconfig. Start uses its current context and starts nothing;
	// Controllers, APIServerArgs and Output have no effect. Default: none; KUBECONFIG is ignored.
	Kubeconfig string

	// UseKubebuilderAssets runs the binaries etcd and kube-apiserver (and kube-controller-manager,
	// if Controllers is set) from the directory in KUBEBUILDER_ASSETS. Default: false; the variable
	// is ignored.
	UseKubebuilderAssets bool

	// APIServerArgs are additional command line flags of kube-apiserver, such as
	// "--feature-gates=...". They come last and override ours. Default: none.
	APIServerArgs []string

	// Output receives the logs of the processes, each line prefixed with the process's name.
	// Several goroutines write to it, one line at a time. Default: only the last lines are kept,
	// for error messages.
	Output io.Writer

	// Progress receives messages during a slow Start, and a line when a process ends unexpectedly.
	// Default: os.Stderr.
	Progress io.Writer

	// StartTimeout bounds the start of the control plane, not counting a build. Default: 60 s.
	StartTimeout time.Duration

	// StopTimeout is the time that each process has to end before it is killed. Default: 10 s.
	StopTimeout time.Duration
}

// Validate returns an error that names the invalid field, if any.
func (o Options) Validate() error {
	switch {
	case o.Kubeconfig != "" && o.UseKubebuilderAssets:
		return fmt.Errorf("envtest: Options.Kubeconfig and Options.UseKubebuilderAssets exclude each other; set one of them")
	case o.Version != "" && o.Kubeconfig != "":
		return fmt.Errorf("envtest: Options.Version and Options.Kubeconfig exclude each other; set one of them")
	case o.Version != "" && o.UseKubebuilderAssets:
		return fmt.Errorf("envtest: Options.Version and Options.UseKubebuilderAssets exclude each other; set one of them")
	case o.StartTimeout < 0:
		return fmt.Errorf("envtest: Options.StartTimeout is %v: it must not be negative", o.StartTimeout)
	case o.StopTimeout < 0:
		return fmt.Errorf("envtest: Options.StopTimeout is %v: it must not be negative", o.StopTimeout)
	}
	_, err := findRelease("Options.Version", o.Version)
	return err
}

func (o Options) startTimeoutCause() error {
	return fmt.Errorf("the control plane did not start within %v; see its last lines, or raise Options.StartTimeout", o.StartTimeout)
}

func (o Options) withDefaults() Options {
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	o.StartTimeout = cmp.Or(o.StartTimeout, 60*time.Second)
	o.StopTimeout = cmp.Or(o.StopTimeout, 10*time.Second)
	return o
}
