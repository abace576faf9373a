// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Command ha shows what becomes of an operator when its leader is in trouble: three replicas, each a process of its own, share a
// Lease of a real API server, and this program stops the leader, kills it, suspends it, and cuts it off, in turn.
//
//	go run ./internal/scenario/ha                     a round of each trouble, twice; about a minute
//	go run ./internal/scenario/ha -rounds 60 -lease 15s
//
// It prints for each round how long it was until the next leader worked, and in the end who wrote what, what came too late and why, and
// whether a promise was broken; then it exits with status 1. The replicas are this program again, one round's dead are replaced for the
// next, and all end when it does, however it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if os.Getenv(asReplica) != "" {
		os.Exit(replicaMain())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C has its usual effect: the process dies at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // what a shell makes of Ctrl-C
)

func run(ctx context.Context, args []string, stdout io.Writer, stderr *os.File) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "ha: %v\n", err)
		return exitUsage
	}
	o.err = stderr
	err = (&driver{options: o, out: stdout}).run(ctx)
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "ha: %v; all that was started has stopped\n", context.Cause(ctx))
		return exitInterrupted
	default:
		fmt.Fprintf(stderr, "ha: %v\n", err)
		return exitFailure
	}
}

// options are the flags.
type options struct {
	rounds   int
	lease    time.Duration
	number   int // of groups
	objects  int
	pace     time.Duration
	linger   time.Duration
	first    int // of the troubles
	unfenced bool
	verbose  bool
	err      *os.File // which replicas write to as well, under -v
}

func troubleNames() string {
	var names []string
	for _, t := range troubles {
		names = append(names, t.name)
	}
	return strings.Join(names, ", ")
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("ha", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.IntVar(&o.rounds, "rounds", 2*len(troubles), "how often to make trouble")
	f.DurationVar(&o.lease, "lease", 3*time.Second, "how long the Lease of a dead leader lasts; whole seconds")
	f.IntVar(&o.number, "groups", 1, "how many groups of three replicas, each with a Lease of its own, to have side by side")
	f.IntVar(&o.objects, "objects", 2, "how many objects a leader updates, and how many it patches, all the time")
	f.DurationVar(&o.pace, "pace", 20*time.Millisecond, "the pause between two writes of one object")
	f.DurationVar(&o.linger, "linger", 5*time.Millisecond, "how long each fourth request of every other group takes from the fence to the wire")
	first := f.String("first", troubles[0].name, "the `trouble` to begin with, the others follow: "+troubleNames())
	f.BoolVar(&o.unfenced, "unfenced", false, "write without the term, to see what the fence is for")
	f.BoolVar(&o.verbose, "v", false, "show the replicas' log, and each late arrival")
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(stderr)
		f.Usage()
		return o, err
	}
	o.first = slices.IndexFunc(troubles, func(t trouble) bool { return t.name == *first })
	switch {
	case err != nil:
	case o.first < 0:
		err = fmt.Errorf("-first %q: it is one of %s", *first, troubleNames())
	case f.NArg() > 0:
		err = fmt.Errorf("unknown argument %q", f.Arg(0))
	case o.rounds < 1 || o.number < 1 || o.objects < 1:
		err = errors.New("-rounds, -groups and -objects must be positive")
	case o.lease < time.Second || o.lease%time.Second != 0:
		err = fmt.Errorf("-lease %s: a Lease counts whole seconds, at least one", o.lease)
	}
	if err != nil {
		return o, fmt.Errorf("%w; run it with -help to see the flags", err)
	}
	return o, nil
}
