// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package licenses recognizes the licenses of modules by their texts.
package licenses

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed returns the SPDX identifiers of licenses that put no terms on the code of our users.
func allowed() []string {
	return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}
}

// A Module is linked into a program. Dir has its files.
type Module struct{ Path, Version, Dir string }

// systems are linked for their own sets of modules.
func systems() []string { return []string{"darwin", "linux", "windows"} }

// Linked returns the modules that the packages in dir and below link, on all systems, in the order
// of their paths. Modules of the repository are left out.
func Linked(ctx context.Context, dir string, env ...string) ([]Module, error) {
	found := map[string]Module{}
	for _, system := range systems() {
		cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Module", "./...")
		cmd.Dir = dir
		cmd.Env = append(append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0"), env...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("licenses: list the dependencies of %s: %w: %s", dir, err, strings.TrimSpace(stderr.String()))
		}
		if err := collect(found, out); err != nil {
			return nil, err
		}
	}
	var all []Module
	for _, m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

func collect(found map[string]Module, out []byte) error {
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Module *struct {
				Module
				Main    bool
				Replace *Module
			}
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m := p.Module; m != nil && !m.Main && (m.Replace == nil || m.Replace.Version != "") {
			found[m.Path] = m.Module
		}
	}
}

// A file such as LICENSE.docs has the license of texts that are not linked.
var (
	fileName  = regexp.MustCompile(`(?i)^(li[cs]en[cs]e|copying|unlicense)([-.].*)?$`)
	otherName = regexp.MustCompile(`(?i)\.(docs|go)$`)
)

// leastCovered is how many percent of a license file its known licenses must make up.
const leastCovered = 75

// Of returns the SPDX identifiers of the licenses in the folder of a module. The error names the
// file with an unknown text.
func Of(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() || !fileName.MatchString(e.Name()) || otherName.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		cover := licensecheck.Scan(text)
		if cover.Percent < leastCovered {
			return nil, fmt.Errorf("the text of %s is of no license that the check knows", e.Name())
		}
		for _, m := range cover.Match {
			if !slices.Contains(ids, m.ID) {
				ids = append(ids, m.ID)
			}
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("no file has its license")
	}
	slices.Sort(ids)
	return ids, nil
}

// Check returns a sentence for each module whose license is unknown or not allowed.
func Check(linked []Module) []string {
	var problems []string
	for _, m := range linked {
		ids, err := Of(m.Dir)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s %s: %v; replace the module, or teach tools/internal/licenses the text", m.Path, m.Version, err))
		}
		for _, id := range ids {
			if !slices.Contains(allowed(), id) {
				problems = append(problems, fmt.Sprintf("%s %s has the license %s, which is not one of %s; replace the module",
					m.Path, m.Version, id, strings.Join(allowed(), ", ")))
			}
		}
	}
	return problems
}
