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
        run one process: its configuration is one JSON object on standard input, and it stops when standard
        input ends; these are meant for the Go package github.com/setpoint-dev/setpoint/envtest
  controlplane version
        print the versions of Kubernetes and of the pipe's protocol

To run a whole control plane by hand:

  go run github.com/setpoint-dev/setpoint/envtest/cluster

To use this file where there is no network: SETPOINT_CONTROLPLANE=<this file> go test ./...
`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, usage, kubernetesVersion)
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
		fmt.Printf("kubernetes %s protocol %d\n", kubernetesVersion, protocol)
		return
	case "help", "-h", "-help", "--help":
		fmt.Printf(usage, kubernetesVersion)
		return
	default:
		fmt.Fprintf(os.Stderr, "controlplane: there is no command %q\n\n"+usage, os.Args[1], kubernetesVersion)
		os.Exit(2)
	}
	// A Ctrl-C goes to every process of the terminal. It is the parent who decides when we stop: its tests may still
	// have to clean up, and they need us for that.
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	stampVersion()
	p := newPipe(os.Stdin, os.Stdout)
	os.Stdout = os.Stderr // nothing but the report may reach the parent
	if err := run(p); err != nil {
		if !p.fail(err) {
			fmt.Fprintln(os.Stderr, "controlplane:", err)
		}
		os.Exit(1)
	}
}
