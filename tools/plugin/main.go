// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command plugin builds the archives of kubectl setpoint for a release, one for each platform of
// its manifest for krew, and a CycloneDX list of the modules beside each. It writes version,
// addresses and sums into the manifest. In tools:
//
//	go run ./plugin -version v0.1.0 -out ../bin/plugin
//
// A build from the same sources and the same version of Go gives the same bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/mod/semver"

	"github.com/setpoint-dev/setpoint/tools/internal/plugin"
)

func main() {
	version := flag.String("version", "", "the `version` of the release, such as v0.1.0")
	root := flag.String("root", "..", "`directory` of the working tree")
	out := flag.String("out", "../bin/plugin", "`directory` of the archives, which is created")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *root, *version, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "plugin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, version, out string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("%q is not a version of the form v0.1.0; write make plugin VERSION=v0.1.0", version)
	}
	name := filepath.Join(root, plugin.ManifestFile)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	m := plugin.Manifest(text).Release(version)
	platforms := m.Platforms()
	if len(platforms) == 0 {
		return errors.New("krew.yaml has no platform with selector, uri and sha256; add one")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, p := range platforms {
		sum, err := plugin.Build{Platform: p, Version: version, Root: root, Out: out}.Run(ctx)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", p.OS, p.Arch, err)
		}
		fmt.Printf("%s  %s\n", sum, p.Archive())
		m = m.WithSum(p, sum)
	}
	return os.WriteFile(name, []byte(m), 0o644)
}
