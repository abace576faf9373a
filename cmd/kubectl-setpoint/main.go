// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-setpoint is a plugin of kubectl. It asks the debug endpoints of every replica of
// an operator why an object is reconciled or not:
//
//	kubectl setpoint why website shop/web --lease website-operator
//
// The commands requeue, pause and resume change an annotation of the object; the others only read.
// See docs/kubectl-setpoint.md for the commands and exit codes.
package main

import (
	"context"
	"os"
	"os/signal"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}
