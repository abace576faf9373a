// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"fmt"
	"io"
	"os"
	"time"
)

// KubernetesVersion is the version of the control plane that Start builds.
const KubernetesVersion = "v1.36.3"

// Options says what Start starts. The zero value finds or builds the control plane program and runs etcd and
// kube-apiserver with it.
type Options struct {
	// CRDs are files with CustomResourceDefinitions, YAML or JSON, or directories of such files (*.yaml, *.yml,
	// *.json; not recursive). Start returns when each is served and can be watched. Default: none.
	CRDs []string

	// Controllers also runs kube-controller-manager with the controllers for garbage collection, namespaces,
	// deployments, replica sets, jobs, service accounts and root CA config maps. With them a deleted namespace takes
	// about 5 s to go. Without them nothing is collected, namespaces stay Terminating, and pods need no service
	// account. Default: false.
	Controllers bool

	// Kubeconfig is the path of a kubeconfig; its current context is used instead of starting anything. Controllers,
	// APIServerArgs and Output then mean nothing. Default: none, and KUBECONFIG is not looked at.
	Kubeconfig string

	// UseKubebuilderAssets runs the binaries etcd and kube-apiserver (and kube-controller-manager, if Controllers is
	// set) in the directory that KUBEBUILDER_ASSETS names. Default: false, and the variable is not looked at.
	UseKubebuilderAssets bool

	// APIServerArgs are further command line flags of kube-apiserver, such as "--feature-gates=...". They are
	// applied last and thus win. Default: none.
	APIServerArgs []string

	// Output receives what the processes log, each line preceded by the process's name. It may be called from
	// several goroutines, one line at a time. Default: only the last lines are kept, for error messages.
	Output io.Writer

	// Progress receives what Start does when it takes a while: what is downloaded and compiled, how many packages,
	// how long so far; and one line when a process ends that should not have. Default: os.Stderr.
	Progress io.Writer

	// StartTimeout bounds the start of the control plane, from the moment its program is there: the build is not
	// counted. Default: 60 s.
	StartTimeout time.Duration

	// StopTimeout is how long each process has to end before it is killed. Default: 10 s.
	StopTimeout time.Duration
}

// Validate names the field that is wrong, if any.
func (o Options) Validate() error {
	switch {
	case o.Kubeconfig != "" && o.UseKubebuilderAssets:
		return fmt.Errorf("envtest: Options.Kubeconfig and Options.UseKubebuilderAssets exclude each other: set one of them")
	case o.StartTimeout < 0:
		return fmt.Errorf("envtest: Options.StartTimeout is %v: it must not be negative", o.StartTimeout)
	case o.StopTimeout < 0:
		return fmt.Errorf("envtest: Options.StopTimeout is %v: it must not be negative", o.StopTimeout)
	}
	return nil
}

func (o Options) startTimeoutCause() error {
	return fmt.Errorf("the control plane did not start within %v: see its last lines, or raise Options.StartTimeout", o.StartTimeout)
}

func (o Options) withDefaults() Options {
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 60 * time.Second
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = 10 * time.Second
	}
	return o
}
