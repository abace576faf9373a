// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

func versionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version of this program", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), version)
			return err
		},
	}
}

// buildInfo returns what Go knows of this program.
func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{}
}

// describe returns one line with the version, the commit of a program that is not a release, if it
// is known, and the version of Go.
func describe(info *debug.BuildInfo) string {
	if release := releaseOf(info); release != "" {
		return fmt.Sprintf("setpoint %s, %s", release, info.GoVersion)
	}
	setting := map[string]string{}
	for _, s := range info.Settings {
		setting[s.Key] = s.Value
	}
	text := "setpoint (devel)"
	if commit := setting["vcs.revision"]; commit != "" {
		text += ", commit " + commit
	} else if commit, err := module.PseudoVersionRev(info.Main.Version); err == nil {
		text += ", commit " + commit
	}
	if setting["vcs.modified"] == "true" {
		text += " with changes"
	}
	return text + ", " + info.GoVersion
}

// releaseOf returns the version of a program, or "" if it is not a release.
func releaseOf(info *debug.BuildInfo) string {
	v := info.Main.Version
	if !semver.IsValid(v) || module.IsPseudoVersion(v) || semver.Build(v) != "" {
		return ""
	}
	return v
}

// ownVersion returns the version of this program, or "" if it is not a release.
func ownVersion() string { return releaseOf(buildInfo()) }
