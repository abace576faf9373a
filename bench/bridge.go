// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
)

// bridge measures what an operator of controller-runtime gains and pays with crbridge.
type bridge struct {
	parts string
}

func newBridge() *bridge {
	p := &bridge{}
	flag.StringVar(&p.parts, "bridge", "reads", "bridge: the `parts` to run")
	return p
}

// run prints all tables.
func (p *bridge) run(w *report, rounds int) {
	crlog.SetLogger(logr.FromSlogHandler(newLogHandler()))
	if err := p.runIn(context.Background(), w, rounds); err != nil {
		w.Flush()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p *bridge) runIn(ctx context.Context, w *report, rounds int) error {
	if slices.Contains(strings.Split(p.parts, ","), "reads") {
		return p.reads(ctx, w, rounds)
	}
	return nil
}
