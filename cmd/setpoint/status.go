// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// statusWrite is a call that writes the status of a kind.
type statusWrite struct{ pkg, kind, verb string }

var (
	// namedHandle matches variables and fields that hold a client's handle.
	namedHandle = regexp.MustCompile(`(\w+)\s*(?:(?::=|=|:)\s*client\.For|\*client\.Handle)\[\*(\w+)\.(\w+)\]`)
	// The calls end with the handle's name or kind, or begin with it.
	statusUpdate = regexp.MustCompile(`\bstatus\.(Update)\([^,]+,\s*(?:client\.For\[\*(\w+)\.(\w+)\]|(?:\w+\.)*(\w+)\s*,)`)
	statusMethod = regexp.MustCompile(`(?:client\.For\[\*(\w+)\.(\w+)\]\([^()]*(?:\(\))?\)|(\w+))\.(Update|Patch|Apply)Status\(`)
)

// statusWrites returns the calls in a Go file that write a status, if their handle is made or
// declared in the file.
func statusWrites(text string) (all []statusWrite) {
	named := map[string]statusWrite{}
	for _, h := range namedHandle.FindAllStringSubmatch(text, -1) {
		w := statusWrite{pkg: h[2], kind: h[3]}
		if other, there := named[h[1]]; there && other != w {
			w = statusWrite{} // two handles have the name
		}
		named[h[1]] = w
	}
	add := func(w statusWrite, name, call string) {
		if name != "" {
			w = named[name]
		}
		if w.verb = "patch"; call == "Update" {
			w.verb = "update"
		}
		if w.kind != "" && !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	for _, c := range statusUpdate.FindAllStringSubmatch(text, -1) {
		add(statusWrite{pkg: c[2], kind: c[3]}, c[4], c[1])
	}
	for _, c := range statusMethod.FindAllStringSubmatch(text, -1) {
		add(statusWrite{pkg: c[1], kind: c[2]}, c[3], c[4])
	}
	return all
}

// missingStatus names the kinds whose status the program writes, and whose CRD has no subresource
// for it: the API server answers such a write with NotFound.
func (p *project) missingStatus(in files) (found []string) {
	for name := range in.program() {
		for _, w := range statusWrites(in[name]) {
			version, ok := strings.CutPrefix(imported(in[name], w.pkg), path.Join(p.module, "api")+"/")
			if !ok || p.hasStatus(in, w.kind, version) {
				continue
			}
			text := fmt.Sprintf("%s writes the status of the kind %s, and its CRD has no subresource for it; add '// +kubebuilder:subresource:status' above the type in api/%s, and run 'make generate'", name, w.kind, version)
			if !slices.Contains(found, text) {
				found = append(found, text)
			}
		}
	}
	return found
}

// hasStatus reports whether a version of a kind has the subresource status, or is in no CRD.
func (p *project) hasStatus(in files, kind, version string) bool {
	for _, c := range p.crds(in) {
		for _, v := range c.Spec.Versions {
			if c.Spec.Names.Kind == kind && v.Name == version {
				return v.Subresources.Status != nil
			}
		}
	}
	return true
}
