// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Kubestyle is a program in the style of kube-controller-manager: flags, logs and metrics of
// k8s.io/component-base, a SharedInformerFactory and client-go's elector. It hosts two controllers
// of Setpoint next to plain ones of client-go.
//
//	go run . --kubeconfig=FILE
//	go run . --kubeconfig=FILE --controllers='*,-sweeper' --leader-elect-lease-duration=30s
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	os.Exit(cli.Run(newCommand(ctx)))
}

func newCommand(ctx context.Context) *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:  "kubestyle",
		Long: "Kubestyle hosts controllers of Setpoint among plain ones of client-go.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := errors.Join(logsapi.ValidateAndApply(o.logs, nil), o.validate(known())); err != nil { //nolint:contextcheck // as below
				return err
			}
			return run(klog.NewContext(ctx, klog.Background()), o)
		},
	}
	flags := o.flags(known()) //nolint:contextcheck // a check asks for a Report without waiting
	for _, set := range flags.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	cliflag.SetUsageAndHelpFunc(cmd, flags, 120)
	return cmd
}

// run runs the program until ctx is done or something fails. It creates the controllers, starts
// what every replica runs, and then, in a term of leadership, what only the leader runs. It stops
// in reverse order.
func run(ctx context.Context, o *options) error {
	h, err := newHost(o)
	if err != nil {
		return err
	}
	defer h.ours.Close()
	controllers, err := h.construct() //nolint:contextcheck // as above
	if err != nil {
		return err
	}
	lease, err := h.newLease()
	if err != nil {
		return err
	}
	s, err := listen(o.address, checksOf(lease, controllers))
	if err != nil {
		return err
	}

	group, everywhere := errgroup.WithContext(context.WithoutCancel(ctx))
	everywhere, stop := context.WithCancel(everywhere)
	defer stop()
	ctx, fail := context.WithCancel(ctx)
	defer fail()
	defer context.AfterFunc(everywhere, fail)() // any failure stops the rest
	group.Go(func() error { return s.run(everywhere) })
	group.Go(func() error { return h.cache.Run(everywhere) })
	for _, c := range controllers {
		if c.warm != nil {
			group.Go(func() error { return c.warm(everywhere) })
		}
	}
	h.factory.StartWithContext(everywhere) // after the constructors have requested their informers
	if ready(ctx, controllers) {
		err = lease.lead(ctx, func(take, work context.Context) error { return lead(take, work, controllers) })
	}
	stop()
	err = errors.Join(err, group.Wait())
	within(3*time.Second, h.factory.Shutdown) // client-go's informers back off for up to a minute
	return err
}

// within waits for join, but at most for limit: the process is about to end.
func within(limit time.Duration, join func()) {
	joined := make(chan struct{})
	go func() {
		join()
		close(joined)
	}()
	select {
	case <-joined:
	case <-time.After(limit):
	}
}
