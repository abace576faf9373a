// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Website demonstrates the operator in this module.
//
//	go run . -once               show the life of one Website on an API server in memory, stop
//	go run . -once -cluster      the same on a real control plane, built from source
//	go run .                     run the operator until Ctrl-C, for kubectl; -cluster works, too
//	go run . -kubeconfig FILE    run the operator on your cluster; -once works there, too
//
// cmd/operator is the operator alone, as it runs in a cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports Ctrl-C
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "website: %v\n", err)
		return exitUsage
	}
	o.out, o.err = stdout, stderr
	err = (&demo{options: o, log: logger(o, ctx.Done())}).run(ctx)
	switch {
	case err == nil:
		return exitOK
	case err == context.Cause(ctx): //nolint:errorlint // only that: everything stopped normally
		fmt.Fprintf(stderr, "website: %v; all that was started has stopped\n", err)
		return exitInterrupted
	default:
		fmt.Fprintf(stderr, "website: %v\n", err)
		return exitFailure
	}
}

// options are the flags and the outputs.
type options struct {
	once         bool
	controlPlane bool
	kubeconfig   string
	crd          string
	http         string
	webhooks     string
	debug        string
	verbose      bool
	out, err     io.Writer
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("website", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.once, "once", false, "create a Website, change it, delete it, then stop (default: run until Ctrl-C)")
	f.BoolVar(&o.controlPlane, "cluster", false, "run on etcd, kube-apiserver and kube-controller-manager, built from source at first (default: on envtest/sim, in memory)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` of your cluster (default: none; KUBECONFIG is ignored)")
	f.StringVar(&o.crd, "crd", "", "install the CRD from this `file` first (default: the built-in one, or none on your cluster)")
	f.StringVar(&o.http, "http", "", "`address` such as localhost:8081 for the operator's /livez and /readyz (default: none)")
	f.StringVar(&o.webhooks, "webhooks", "127.0.0.1:0", "`address` of this machine at which the API server reaches the operator's webhooks")
	f.StringVar(&o.debug, "debug", "", "loopback `address` such as localhost:6060 for the operator's /debug/why, /debug/failing and profiles (default: none)")
	f.BoolVar(&o.verbose, "v", false, "show the operator's log (default: only warnings)")
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(stderr)
		f.Usage()
		return o, err
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if err == nil && o.controlPlane && o.kubeconfig != "" {
		err = errors.New("-cluster starts a control plane, and -kubeconfig uses your cluster: omit one of them")
	}
	if err != nil {
		return o, fmt.Errorf("%w; run it with -help to see the flags", err)
	}
	return o, nil
}
