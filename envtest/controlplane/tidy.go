// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

// This program runs "go mod tidy" for a module that requires k8s.io/kubernetes; see doc.go.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const kubernetes = "k8s.io/kubernetes"

func main() {
	if err := tidy(); err != nil {
		fmt.Fprintln(os.Stderr, "tidy:", err)
		os.Exit(1)
	}
}

func tidy() error {
	versions, err := required("go.mod")
	if err != nil {
		return err
	}
	version := versions[kubernetes]
	// Kubernetes v1.36.3 is published with k8s.io/api v0.36.3.
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
	var replace, drop []string
	for path, v := range staging {
		if v == "v0.0.0" {
			replace = append(replace, "-replace="+path+"="+path+"@"+staged)
			drop = append(drop, "-dropreplace="+path)
		}
	}
	if _, err := goCommand(append([]string{"mod", "edit"}, replace...)...); err != nil {
		return err
	}
	_, tidyErr := goCommand("mod", "tidy")
	if _, err := goCommand(append([]string{"mod", "edit"}, drop...)...); err != nil {
		return err
	}
	return tidyErr
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
