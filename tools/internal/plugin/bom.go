// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	gomodule "golang.org/x/mod/module"

	"github.com/setpoint-dev/setpoint/tools/internal/licenses"
	"github.com/setpoint-dev/setpoint/tools/internal/modules"
)

// parts returns the modules of a program in the form of CycloneDX. Modules of the repository get
// the version of the release. cache is the module cache, which has the licenses of the others.
func parts(info *debug.BuildInfo, version, cache string) (*cdx.BOM, error) {
	program := component(cdx.ComponentTypeApplication, info.Main.Path, version, "Apache-2.0")
	standard := component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause")
	components := []cdx.Component{standard}
	for _, m := range info.Deps {
		if m.Path == modules.Library || strings.HasPrefix(m.Path, modules.Library+"/") {
			components = append(components, component(cdx.ComponentTypeLibrary, m.Path, version, "Apache-2.0"))
			continue
		}
		path, err := gomodule.EscapePath(m.Path)
		if err != nil {
			return nil, err
		}
		ids, err := licenses.Of(filepath.Join(cache, filepath.FromSlash(path)+"@"+m.Version))
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", m.Path, m.Version, err)
		}
		components = append(components, component(cdx.ComponentTypeLibrary, m.Path, m.Version, ids...))
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &program}
	bom.Components = &components
	return bom, nil
}

func component(t cdx.ComponentType, path, version string, ids ...string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	var choices cdx.Licenses
	for _, id := range ids {
		choices = append(choices, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return cdx.Component{Type: t, BOMRef: url, Name: path, Version: version, PackageURL: url, Licenses: &choices}
}

// schemaVersion is one that scanners of 2026 read.
const schemaVersion = cdx.SpecVersion1_6

func encode(w io.Writer, bom *cdx.BOM) error {
	e := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON)
	e.SetPretty(true)
	return e.EncodeVersion(bom, schemaVersion)
}
