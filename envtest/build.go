// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cost is as measured, with empty caches.
const cost = "9 minutes of CPU time, so about 5 on 2 idle cores, 90 MB of modules to download and 3 GB of disk"

// build requires that the caller holds path's lock.
func build(ctx context.Context, src source, path string, report *progressReport) (err error) {
	if _, err := exec.LookPath("go"); err != nil {
		return errNoGo
	}
	ctx, end := untilSignal(ctx)
	defer func() {
		end(func() { report.line("%v", err) })
	}()

	// Go's temporary files go here too, so one RemoveAll cleans up, in this build or the next.
	scratch := path + ".tmp"
	if err := errors.Join(os.RemoveAll(scratch), os.Mkdir(scratch, 0o755)); err != nil {
		return buildError(err, "")
	}
	defer os.RemoveAll(scratch)

	report.line("building the control plane, Kubernetes %s, once: %s%s", src.release, cost, insideTest())
	report.begin("downloading", 0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); report.run(stop) }()
	defer func() { close(stop); <-stopped; report.end(outcome(err)) }()

	g := goTool{scratch: scratch, dir: scratch, report: report}
	if g.dir = src.dir; src.dir == "" {
		if g.dir, err = g.download(ctx, src.version); err != nil {
			return err
		}
	}
	requirements, tags := "-modfile="+src.release.requirements()+".mod", "-tags="+src.release.tag()
	packages, err := g.run(ctx, "list", requirements, tags, "-deps", ".") // this downloads
	if err != nil {
		return err
	}
	report.begin("compiling", strings.Count(packages, "\n"))
	program := filepath.Join(scratch, "controlplane")
	// Without debug information, compiling takes 8 % less CPU time and the cache a fifth less disk.
	if _, err := g.run(ctx, "build", requirements, tags, "-v", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags=-s -w", "-o", program, "."); err != nil {
		return err
	}
	if err := publish(program, path); err != nil {
		return buildError(err, "")
	}
	return nil
}

func insideTest() string {
	if limit := flag.Lookup("test.timeout"); limit != nil && limit.Value.String() != "0s" {
		return fmt.Sprintf("; go test gives this test %s, which may be too short on a busy machine; \"go run %s/envtest/cluster fetch\" builds it beforehand", limit.Value, modulePath)
	}
	return ""
}

func outcome(err error) string {
	if err != nil {
		return "gave up building the control plane"
	}
	return "built the control plane"
}

func publish(from, to string) error {
	f, err := os.OpenFile(from, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	// Sync first: after a power failure the name must not exist without its contents.
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// untilSignal returns a context that SIGINT or SIGTERM ends, because the go command has its own
// process group. end re-raises the signal, unless parent has ended: then the program handled it.
func untilSignal(parent context.Context) (ctx context.Context, end func(last func())) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(s) { // as in a background job of a shell script
			signal.Notify(signals, s)
		}
	}
	over, joined := make(chan struct{}), make(chan struct{})
	var got os.Signal // written before joined is closed
	go func() {
		defer close(joined)
		select {
		case got = <-signals:
			cancel(fmt.Errorf("%w by signal: %v", errInterrupted, got))
		case <-over:
		}
	}()
	return ctx, func(last func()) {
		signal.Stop(signals)
		close(over)
		<-joined
		cancel(nil)
		if got != nil && parent.Err() == nil {
			last()
			raise(got)
		}
	}
}

type goTool struct {
	scratch string
	dir     string
	report  *progressReport
}

func (g goTool) download(ctx context.Context, version string) (string, error) {
	out, err := g.run(ctx, "mod", "download", "-json", programPath+"@"+version)
	var module struct{ Dir, Error string }
	if json.Unmarshal([]byte(out), &module) == nil && module.Error != "" {
		return "", buildError(errors.New("go mod download"), module.Error)
	}
	return module.Dir, err
}

func (g goTool) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = g.dir
	cmd.Env = buildEnvironment(g.scratch)
	isolate(cmd)
	dieWithParent(cmd)
	cmd.Cancel = func() error { return interrupt(cmd.Process) } // go removes partial downloads
	cmd.WaitDelay = 5 * time.Second
	stderr := &tail{skips: g.report.took}
	var stdout strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	err := cmd.Run()
	if cmd.Process != nil {
		kill(cmd.Process) // compilers that may be left
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("envtest: the build of the control plane was stopped: %w; its result is discarded, downloads and compiled packages stay cached", context.Cause(ctx))
	}
	if err != nil {
		return stdout.String(), buildError(err, stderr.String())
	}
	return stdout.String(), nil
}

// keptFlags returns the GOFLAGS that affect how a build runs, not its result: -modcacherw and -p.
func keptFlags(variable string) string {
	flags := strings.Fields(strings.TrimPrefix(variable, "GOFLAGS="))
	kept := slices.DeleteFunc(flags, func(flag string) bool { return flag != "-modcacherw" && !strings.HasPrefix(flag, "-p=") })
	return "GOFLAGS=" + strings.Join(kept, " ")
}

// buildEnvironment leaves out the user's settings for other builds. CGO_ENABLED=0 makes Go the only
// requirement.
func buildEnvironment(scratch string) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "GOWORK", "GOOS", "GOARCH", "GOTMPDIR", "CGO_ENABLED", "GO111MODULE", "GOCOVERDIR", "PWD":
		case "GOFLAGS":
			env = append(env, keptFlags(v))
		default:
			env = append(env, v)
		}
	}
	return append(env, "GOWORK=off", "CGO_ENABLED=0", "GOTMPDIR="+scratch)
}
