// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Build makes the archive of one platform.
type Build struct {
	Platform
	Version string
	Root    string // the working tree
	Out     string // the folder of the archive
}

// Run writes the archive and the list of modules, and returns the archive's SHA-256.
func (b Build) Run(ctx context.Context) (sum string, err error) {
	tmp, err := os.MkdirTemp("", "setpoint-plugin-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	program := filepath.Join(tmp, b.program())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, ".")
	cmd.Dir = filepath.Join(b.Root, Module)
	// Each variable changes the bytes of the program.
	cmd.Env = append(os.Environ(), "GOOS="+b.OS, "GOARCH="+b.Arch, "CGO_ENABLED=0", "GOWORK=", "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, text)
	}
	files := []file{{b.program(), program, 0o755}, {"LICENSE", filepath.Join(b.Root, "LICENSE"), 0o644}}
	text, err := pack(b.Archive(), files)
	if err != nil {
		return "", err
	}
	if err := b.writeBOM(ctx, program); err != nil {
		return "", err
	}
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:]), os.WriteFile(filepath.Join(b.Out, b.Archive()), text, 0o644)
}

// program returns the file name of the program in the archive.
func (b Build) program() string {
	if b.OS == "windows" {
		return "kubectl-setpoint.exe"
	}
	return "kubectl-setpoint"
}

// writeBOM writes the modules of the program next to its archive.
func (b Build) writeBOM(ctx context.Context, program string) (err error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return err
	}
	bom, err := parts(info, b.Version, strings.TrimSpace(string(cache)))
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(strings.TrimSuffix(b.Archive(), ".zip"), ".tar.gz") + ".cdx.json"
	f, err := os.Create(filepath.Join(b.Out, name))
	if err != nil {
		return err
	}
	return errors.Join(encode(f, bom), f.Close())
}
