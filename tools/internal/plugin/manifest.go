// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin builds the archives of kubectl setpoint, and the lists of their modules.
package plugin

import (
	"path"
	"regexp"
)

// Module is the folder of the program.
const Module = "cmd/kubectl-setpoint"

// ManifestFile is the manifest for krew.
const ManifestFile = Module + "/krew.yaml"

// A Manifest is the text of ManifestFile.
type Manifest string

// A Platform is an archive of the manifest.
type Platform struct {
	OS, Arch string
	URL, Sum string
}

// Archive returns the file name.
func (p Platform) Archive() string { return path.Base(p.URL) }

var (
	versionLine = regexp.MustCompile(`(?m)^(  version: )(\S+)$`)
	versionPart = regexp.MustCompile(`(/releases/download/)[^/\s]+/`)
	entry       = regexp.MustCompile(`selector: \{matchLabels: \{os: (\w+), arch: (\w+)\}\}\n\s+uri: (\S+)\n\s+sha256: (\S+)`)
	sumOfEntry  = regexp.MustCompile(`\S+$`)
)

// Version returns the version of the plugin, or "".
func (m Manifest) Version() string {
	if line := versionLine.FindStringSubmatch(string(m)); line != nil {
		return line[2]
	}
	return ""
}

// Release returns the manifest with another version in its line and its addresses.
func (m Manifest) Release(version string) Manifest {
	text := versionLine.ReplaceAllString(string(m), "${1}"+version)
	return Manifest(versionPart.ReplaceAllString(text, "${1}"+version+"/"))
}

// Platforms returns the archives.
func (m Manifest) Platforms() []Platform {
	var all []Platform
	for _, e := range entry.FindAllStringSubmatch(string(m), -1) {
		all = append(all, Platform{OS: e[1], Arch: e[2], URL: e[3], Sum: e[4]})
	}
	return all
}

// WithSum returns the manifest with another sum for a platform.
func (m Manifest) WithSum(p Platform, sum string) Manifest {
	return Manifest(entry.ReplaceAllStringFunc(string(m), func(text string) string {
		if e := entry.FindStringSubmatch(text); e[1] != p.OS || e[2] != p.Arch {
			return text
		}
		return sumOfEntry.ReplaceAllString(text, sum)
	}))
}
