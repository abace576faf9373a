// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Program cluster runs a Kubernetes control plane in the foreground, to explore by hand. As a
// separate step in CI, it fetches the program that package envtest needs. It needs only Go:
//
//	go run github.com/setpoint-dev/setpoint/envtest/cluster        # prints a kubeconfig's path
//	go run github.com/setpoint-dev/setpoint/envtest/cluster fetch  # prints the program's path
//
// The flag -version chooses an older Kubernetes, as envtest.Options.Version does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/client-go/discovery"

	"github.com/setpoint-dev/setpoint/envtest"
)

const usage = `Usage: cluster [flags] [fetch]

Without a command, cluster runs etcd, kube-apiserver and kube-controller-manager until Ctrl-C, and prints
the path of a kubeconfig. With fetch, it only builds the program, unless it is cached, and prints its path.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	crds := flags.String("crds", "", "`files` or directories of CRDs to install, separated by commas")
	path := flags.String("kubeconfig", "", "`path` of the kubeconfig to write (default: in a temporary directory)")
	version := flags.String("version", "", "minor `version` of Kubernetes, such as 1.36 (default: SETPOINT_KUBERNETES, or else the newest)")
	controllers := flags.Bool("controllers", true, "also run kube-controller-manager")
	logs := flags.Bool("logs", false, "show the processes' logs")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return fmt.Errorf("see -help")
	}
	switch {
	case flags.NArg() == 0:
	case flags.NArg() == 1 && flags.Arg(0) == "fetch":
		program, err := envtest.Program(ctx, envtest.Options{Version: *version})
		if err == nil {
			fmt.Fprintln(out, program)
		}
		return err
	default:
		return fmt.Errorf("cluster: unknown command %q; see -help", strings.Join(flags.Args(), " "))
	}
	o := envtest.Options{Version: *version, Controllers: *controllers}
	if *crds != "" {
		o.CRDs = strings.Split(*crds, ",")
	}
	if *logs {
		o.Output = os.Stderr
	}
	return serve(ctx, o, *path, out)
}

func serve(ctx context.Context, o envtest.Options, path string, out io.Writer) (err error) {
	c, err := envtest.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := c.Stop(); err == nil {
			err = stopErr
		}
	}()
	if path == "" {
		dir, err := os.MkdirTemp("", "setpoint-cluster-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		path = filepath.Join(dir, "kubeconfig")
	}
	if err := c.WriteKubeconfig(path); err != nil {
		return err
	}
	fmt.Fprintln(out, path)
	client, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "setpoint: Kubernetes %s at %s; Ctrl-C ends it\n", version, c.Config().Host)
	<-ctx.Done()
	return nil
}
