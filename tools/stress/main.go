// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Command stress runs the tests of the library and the examples many times, to find flaky ones.
//
//	stress [-runs 12] [-race 3] [-light 4] [-procs 1,2,8] [-hogs 2] [-jobs 2] [-for 1h]
//	       [-packages regexp] [-run regexp] [-first 0] [-seed 1]
//
// It builds each package's test binary once, and once more with the race detector. Each run
// shuffles the tests and takes the next value of -procs as GOMAXPROCS. It shares the machine with
// -hogs goroutines of this program that use a CPU each. The runs go in rounds: all packages run
// once before any runs twice. Packages whose tests start a control plane are slow. They run only in
// every fourth round, or as -light specifies. Each round begins with package number -first, so a
// short run can reach other packages.
//
// A failed run is printed with the command that repeats it. A table of all packages follows at the
// end. The exit status is 1 if a run failed, 2 if the tests could not be built or run, and 130
// after SIGINT or SIGTERM. It leaves no process and no folder behind, except after SIGKILL.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	root     string
	runs     int // without the race detector
	race     int // with it
	light    int
	procs    []int
	hogs     int
	jobs     int
	bound    time.Duration
	timeout  time.Duration
	packages *regexp.Regexp
	first    int
	run      string
	seed     int64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := stress(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1
	exitError       = 2
	exitInterrupted = 130
)

func stress(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	var results table
	if err == nil {
		err = o.stress(ctx, stdout, &results)
	}
	switch {
	case ctx.Err() != nil:
		results.print(stdout)
		fmt.Fprintln(stderr, "stress: interrupted; everything has stopped")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(stderr, "stress:", err)
		return exitError
	}
	results.print(stdout)
	if results.failed() > 0 {
		return exitFailed
	}
	return exitOK
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{seed: time.Now().UnixNano()}
	f := flag.NewFlagSet("stress", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.root, "root", ".", "the folder of the library")
	f.IntVar(&o.runs, "runs", 12, "runs of each package without the race detector")
	f.IntVar(&o.race, "race", 3, "runs of each package with the race detector, which needs a C compiler")
	f.IntVar(&o.light, "light", 4, "run packages that start a control plane in every n-th round only")
	f.IntVar(&o.hogs, "hogs", 2, "goroutines that use a CPU each, next to the tests")
	f.IntVar(&o.jobs, "jobs", min(2, runtime.NumCPU()), "test binaries that run at the same time")
	f.IntVar(&o.first, "first", 0, "begin each round with the `n`-th package; after the last one follows number 0")
	f.DurationVar(&o.bound, "for", time.Hour, "begin no run after this time, not counting builds")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "time limit of one run")
	f.StringVar(&o.run, "run", "", "only tests that match this `regexp`")
	f.Func("seed", "`seed` of the first run's shuffle; each run adds one (default the time)", func(s string) (err error) {
		o.seed, err = strconv.ParseInt(s, 10, 64)
		return err
	})
	procs := f.String("procs", "1,2,8", "values of GOMAXPROCS, taken in turn")
	packages := f.String("packages", "", "only packages whose path matches this `regexp`")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.packages, err = regexp.Compile(*packages); err != nil {
		return o, fmt.Errorf("-packages: %w", err)
	}
	for p := range strings.SplitSeq(*procs, ",") {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-procs %s: use positive numbers, separated by commas", *procs)
		}
		o.procs = append(o.procs, n)
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	case o.runs < 0 || o.race < 0 || o.hogs < 0:
		return o, errors.New("-runs, -race and -hogs must not be negative")
	case o.first < 0:
		return o, fmt.Errorf("-first %d: it must not be negative", o.first)
	case o.light < 1 || o.jobs < 1:
		return o, errors.New("-light and -jobs must be positive")
	}
	return o, nil
}
