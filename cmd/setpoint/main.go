// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command setpoint makes the project of an operator, and adds kinds, versions, webhooks, finalizers
// and children to it.
//
//	go run github.com/setpoint-dev/setpoint/cmd/setpoint@latest new shop-operator --module example.org/shop-operator --kind Shop --group shop.example.org
//	cd shop-operator && make test
//
// The result belongs to its user: it is a copy of a small operator whose tests pass, with other
// names. Only the commands add and doctor look at it again.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := command(os.Stdout).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "setpoint:", err)
		os.Exit(1)
	}
}

// command returns the command with all others below it. They print to out.
func command(out io.Writer) *cobra.Command {
	version := describe(buildInfo())
	root := &cobra.Command{
		Use: "setpoint", Short: "make the project of an operator, and add to it", Version: version,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetOut(out)
	root.SetVersionTemplate(version + "\n")
	root.CompletionOptions.DisableDefaultCmd = true
	add := &cobra.Command{
		Use: "add", Short: "add to the project in this directory", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	add.AddCommand(addKindCommand(), addWebhookCommand(), addVersionCommand(), addFinalizerCommand(), addChildCommand())
	root.AddCommand(newCommand(), add, doctorCommand(), versionCommand(version))
	return root
}
