// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command release checks that the working tree is ready for a version, and tags the commit: v0.1.0
// for the library, and tracing/v0.1.0 for the module in the folder tracing. It pushes nothing. If a
// check fails, it prints one sentence for each and creates no tag. In tools:
//
//	go run ./release -version v0.1.0
//	go run ./release -unreleased
//
// With -unreleased it prints what has changed since the last tag: the API, and the section
// Unreleased of the changelog.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/setpoint-dev/setpoint/tools/internal/modules"
)

func main() {
	version := flag.String("version", "", "the `version` to release, such as v0.1.0")
	unreleased := flag.Bool("unreleased", false, "print what has changed since the last release, and check nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *version, *unreleased)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, version string, unreleased bool) error {
	root, err := repository{"."}.git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return fmt.Errorf("release: %w; run it in a clone", err)
	}
	r := release{
		repository: repository{root},
		published:  modules.Published(),
		libraries:  modules.Libraries(),
		version:    version,
	}
	r.build = r.buildArchive
	if unreleased {
		return r.unreleased(ctx, out)
	}
	if version == "" {
		return errors.New("release: no version; write make release VERSION=v0.1.0")
	}
	return r.tag(ctx, out)
}
