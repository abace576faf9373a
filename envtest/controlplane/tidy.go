// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

// This program runs "go mod tidy" for modules that require k8s.io/kubernetes; see doc.go.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	kubernetes = "k8s.io/kubernetes"
	unstaged   = "v0.0.0"
)

func main() {
	older, err := filepath.Glob("kubernetes-*.mod")
	for _, file := range append([]string{"go.mod"}, older...) {
		if err == nil {
			err = tidy(file)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tidy:", err)
		os.Exit(1)
	}
}

func tidy(file string) error {
	before, err := required(file)
	if err != nil {
		return err
	}
	version := before[kubernetes]
	// Kubernetes v1.37.2 is published with k8s.io/api v0.37.2.
	staged := "v0" + strings.TrimPrefix(version, "v1")
	out, err := goCommand("mod", "download", "-json", kubernetes+"@"+version)
	if err != nil {
		return err
	}
	var module struct{ GoMod string }
	if err := json.Unmarshal(out, &module); err != nil {
		return err
	}
	staging, err := required(module.GoMod)
	if err != nil {
		return err
	}
	var add, drop []string
	for path, v := range staging {
		if v != unstaged {
			continue
		}
		add = append(add, "-replace="+path+"="+path+"@"+staged)
		drop = append(drop, "-dropreplace="+path)
		if before[path] != "" {
			add = append(add, "-require="+path+"@"+staged)
		}
	}
	if err := edit(file, add); err != nil {
		return err
	}
	_, tidyErr := goCommand("mod", "tidy", "-modfile="+file)
	if err := edit(file, drop); err != nil || tidyErr != nil {
		return errors.Join(tidyErr, err)
	}
	return requireStaged(file, staged)
}

// requireStaged replaces the requirements that tidying adds as Kubernetes has them.
func requireStaged(file, staged string) error {
	after, err := required(file)
	if err != nil {
		return err
	}
	var changes []string
	for path, v := range after {
		if v == unstaged {
			changes = append(changes, "-require="+path+"@"+staged)
		}
	}
	return edit(file, changes)
}

func edit(file string, changes []string) error {
	if len(changes) == 0 {
		return nil // go mod edit requires one
	}
	_, err := goCommand(append(append([]string{"mod", "edit"}, changes...), file)...)
	return err
}

// required returns the required version of each module in a go.mod file.
func required(gomod string) (map[string]string, error) {
	out, err := goCommand("mod", "edit", "-json", gomod)
	if err != nil {
		return nil, err
	}
	var file struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &file); err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for _, r := range file.Require {
		versions[r.Path] = r.Version
	}
	return versions, nil
}

func goCommand(args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
