// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// programVariable has the path of a control plane program built elsewhere.
const programVariable = "SETPOINT_CONTROLPLANE"

// keptFor is how long an unused cached program is kept. The next build removes it.
const keptFor = 30 * 24 * time.Hour

// Program returns the path of the control plane program: the file that SETPOINT_CONTROLPLANE names,
// the cached build of o.Version, or a fresh build, which takes minutes and reports to o.Progress.
// The other options have no effect. Start calls it. It is safe for concurrent use, also by several
// processes: one builds, the others wait.
func Program(ctx context.Context, o Options) (string, error) {
	if err := o.Validate(); err != nil {
		return "", err
	}
	if err := supported(); err != nil {
		return "", err
	}
	if path, err := o.givenProgram(); path != "" || err != nil {
		return path, err
	}
	r, err := o.release()
	if err != nil {
		return "", err
	}
	src, err := findSource(ctx)
	if err != nil {
		return "", err
	}
	src.release = r
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("envtest: there is no cache directory for the control plane program: %w; set HOME or XDG_CACHE_HOME, or %s", err, programVariable)
	}
	return cachedProgram(ctx, filepath.Join(cache, "setpoint", "controlplane"), src, &progressReport{out: o.withDefaults().Progress})
}

func checkProgram(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Unwrap(err)
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return errors.New("not an executable file")
	}
	return nil
}

func cachedProgram(ctx context.Context, dir string, src source, report *progressReport) (string, error) {
	key, err := src.key()
	if err != nil {
		return "", fmt.Errorf("envtest: cannot read the control plane's source: %w", err)
	}
	key = fmt.Sprintf("%s-%s-%s-%s-%s", src.release, runtime.Version(), runtime.GOOS, runtime.GOARCH, key)
	program := filepath.Join(dir, key)
	if useCached(program) {
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("envtest: cannot create the cache directory: %w; set XDG_CACHE_HOME to a writable directory", err)
	}
	unlock, err := lockPath(ctx, program+".lock", report)
	if err != nil {
		return "", err
	}
	defer unlock()
	if useCached(program) { // built by another process meanwhile
		return program, nil
	}
	prune(dir)
	if err := build(ctx, src, program, report); err != nil {
		return "", err
	}
	return program, nil
}

func useCached(program string) bool {
	if checkProgram(program) != nil {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(program, now, now) // a read-only cache works, too
	return true
}

// prune does not affect a process that runs a removed program.
func prune(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && filepath.Ext(e.Name()) != ".lock" && time.Since(info.ModTime()) > keptFor {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// lockPath polls, because a blocking lock cannot be cancelled.
func lockPath(ctx context.Context, path string, report *progressReport) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("envtest: cannot lock the cache directory: %w; set XDG_CACHE_HOME to a writable directory", err)
	}
	for waited := false; ; waited = true {
		locked, err := lockFile(f, true, false)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("envtest: cannot lock the cache directory: %w", err)
		}
		if locked {
			return func() { f.Close() }, nil
		}
		if !waited {
			report.line("waiting for another process that builds the control plane")
		}
		if ended := pause(ctx, 100*time.Millisecond); ended != nil {
			f.Close()
			return nil, fmt.Errorf("envtest: gave up waiting for another process that builds the control plane (it holds %s): %w", path, ended)
		}
	}
}
