// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/txtar"
)

// kubernetes are the modules that have the same version in each release of Kubernetes.
func kubernetes() []string {
	return []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}
}

var (
	generator = regexp.MustCompile(`controller-gen@(v[0-9.]+)`)
	image     = regexp.MustCompile(`(?m)^FROM .*golang:([0-9.]+)`)
)

// oldVersions compares the versions in a project with the template's, which have been tested with
// this program. program is its version, or "" if it is not a release.
func oldVersions(in files, doc, program string) (found []string) {
	m, err := modfile.Parse("go.mod", []byte(in["go.mod"]), nil)
	if err != nil {
		return []string{err.Error()}
	}
	tested := files{}
	for _, f := range txtar.Parse(packed).Files {
		tested[f.Name] = string(f.Data)
	}
	t, err := modfile.Parse("go.mod", []byte(tested["go.mod"]), nil)
	if err != nil {
		return []string{err.Error()}
	}
	found = append(oldGo(m, t, in["Dockerfile"]), oldModules(m, t)...)
	if has, want := required(m, library), program; want != "" && has != "" && !replaced(m, library) {
		switch semver.Compare(has, want) {
		case -1:
			found = append(found, fmt.Sprintf("go.mod requires %s %s, older than this program, %s; run 'go get %[1]s@%[3]s' and 'go mod tidy'", library, has, want))
		case 1:
			found = append(found, fmt.Sprintf("this program is %s, older than %s %s in go.mod; run 'go install %[2]s/cmd/setpoint@%[3]s'", want, library, has))
		}
	}
	has, want := generator.FindStringSubmatch(in[doc]), generator.FindStringSubmatch(tested["api/v1alpha1/doc.go"])
	if has != nil && want != nil && semver.Compare(has[1], want[1]) < 0 {
		found = append(found, fmt.Sprintf("%s runs controller-gen %s, older than %s; change the version and run 'make generate'", doc, has[1], want[1]))
	}
	return found
}

// oldGo compares the versions of Go.
func oldGo(m, tested *modfile.File, dockerfile string) (found []string) {
	if m.Go == nil {
		return []string{"go.mod has no line 'go " + tested.Go.Version + "'; add it"}
	}
	if semver.Compare("v"+m.Go.Version, "v"+tested.Go.Version) < 0 {
		found = append(found, fmt.Sprintf("go.mod has Go %s, and Setpoint needs %s; run 'go mod edit -go=%[2]s'", m.Go.Version, tested.Go.Version))
	}
	if has := image.FindStringSubmatch(dockerfile); has != nil && semver.Compare(minor(has[1]), minor(m.Go.Version)) < 0 {
		found = append(found, fmt.Sprintf("Dockerfile builds with golang:%s, older than Go %s in go.mod; change the image", has[1], m.Go.Version))
	}
	return found
}

func minor(version string) string { return semver.MajorMinor("v" + version) }

// oldModules compares the versions of Kubernetes' modules with each other and with the tested ones.
func oldModules(m, tested *modfile.File) (found []string) {
	versions := map[string]bool{}
	for _, name := range kubernetes() {
		has, want := required(m, name), required(tested, name)
		if has == "" {
			continue
		}
		versions[has] = true
		if semver.Compare(has, want) < 0 {
			found = append(found, fmt.Sprintf("go.mod requires %s %s, older than %s; run 'go get %[1]s@%[3]s'", name, has, want))
		}
	}
	if len(found) == 0 && len(versions) > 1 {
		found = append(found, fmt.Sprintf("go.mod has different versions of %s, which belong together; give them one with 'go get'", strings.Join(kubernetes(), ", ")))
	}
	return found
}

// required returns the version of a module in go.mod, or "".
func required(m *modfile.File, module string) string {
	for _, r := range m.Require {
		if r.Mod.Path == module {
			return r.Mod.Version
		}
	}
	return ""
}

func replaced(m *modfile.File, module string) bool {
	for _, r := range m.Replace {
		if r.Old.Path == module {
			return true
		}
	}
	return false
}
