// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command api writes the folder api: one file for each public package, which lists its exported
// declarations. In tools:
//
//	go run ./api
//
// A test fails if a file is not current, and if an incompatible change is not in the changelog.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/setpoint-dev/setpoint/tools/internal/api"
	"github.com/setpoint-dev/setpoint/tools/internal/modules"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := write(ctx, "..")
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(ctx context.Context, root string) error {
	b, err := api.Load(ctx, root, modules.Libraries())
	if err != nil {
		return err
	}
	return b.Write(filepath.Join(root, "api"))
}
