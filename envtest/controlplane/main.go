// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `controlplane %s: etcd, kube-apiserver and kube-controller-manager in one program, for tests.

Usage:

  controlplane etcd | kube-apiserver | kube-controller-manager
        run one process; it reads its configuration, a JSON object, from standard input and stops when standard
        input ends; meant for the Go package github.com/setpoint-dev/setpoint/envtest
  controlplane version
        print the versions of Kubernetes and of the pipe's protocol

To run a whole control plane by hand:

  go run github.com/setpoint-dev/setpoint/envtest/cluster

To use this file without a network: SETPOINT_CONTROLPLANE=<this file> go test ./...
`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, usage, kubernetesVersion())
		os.Exit(2)
	}
	var run func(*pipe) error
	switch os.Args[1] {
	case "etcd":
		run = runEtcd
	case "kube-apiserver":
		run = runAPIServer
	case "kube-controller-manager":
		run = runControllerManager
	case "version":
		fmt.Printf("kubernetes %s protocol %d\n", kubernetesVersion(), protocol)
		return
	case "help", "-h", "-help", "--help":
		fmt.Printf(usage, kubernetesVersion())
		return
	default:
		fmt.Fprintf(os.Stderr, "controlplane: unknown command %q\n\n"+usage, os.Args[1], kubernetesVersion())
		os.Exit(2)
	}
	// A Ctrl-C goes to every process of the terminal. The parent decides when to stop: its tests
	// may still need us for cleanup.
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	p := newPipe(os.Stdin, os.Stdout)
	os.Stdout = os.Stderr // only the report may reach the parent
	err := stampVersion(kubernetesVersion())
	if err == nil {
		err = run(p)
	}
	if err != nil {
		if !p.fail(err) {
			fmt.Fprintln(os.Stderr, "controlplane:", err)
		}
		os.Exit(1)
	}
}
