// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Command ha shows how an operator copes with a leader in trouble. Three replicas, each a
// separate process, share a Lease of a real API server. The program stops, kills, suspends and cuts
// off the leader in turn.
//
//	make ha                                    two rounds of each trouble, about a minute
//	make ha HAFLAGS='-rounds 60 -lease 15s'
//
// For each round it prints the time until the next leader worked. At the end it prints the writes
// of each replica, the late ones with their cause, and broken guarantees. If there are any, it
// exits with status 1. The replicas run this program, too. Ended ones are replaced in the next
// round, and all end together with the driver, even if it is killed.
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
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports Ctrl-C
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
	err      *os.File // also the replicas' log, with -v
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
	f.IntVar(&o.rounds, "rounds", 2*len(troubles), "`number` of rounds, with one trouble each")
	f.DurationVar(&o.lease, "lease", 3*time.Second, "`duration` of the Lease, in whole seconds")
	f.IntVar(&o.number, "groups", 1, "`number` of concurrent groups of three replicas, each with its own Lease")
	f.IntVar(&o.objects, "objects", 2, "`number` of objects that a leader updates continuously, and of those that it patches")
	f.DurationVar(&o.pace, "pace", 20*time.Millisecond, "`pause` between two writes of one object")
	f.DurationVar(&o.linger, "linger", 5*time.Millisecond, "`delay` between the fence and the wire, for each fourth request of every other group")
	first := f.String("first", troubles[0].name, "the first `trouble`; the others follow: "+troubleNames())
	f.BoolVar(&o.unfenced, "unfenced", false, "write without the term, to show what the fence prevents")
	f.BoolVar(&o.verbose, "v", false, "show the replicas' log and each late arrival")
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
		err = fmt.Errorf("-first %q: unknown trouble; use one of %s", *first, troubleNames())
	case f.NArg() > 0:
		err = fmt.Errorf("unknown argument %q", f.Arg(0))
	case o.rounds < 1 || o.number < 1 || o.objects < 1:
		err = errors.New("-rounds, -groups and -objects must be positive")
	case o.lease < time.Second || o.lease%time.Second != 0:
		err = fmt.Errorf("-lease %s: a Lease needs whole seconds, at least one", o.lease)
	}
	if err != nil {
		return o, fmt.Errorf("%w; run it with -help to see the flags", err)
	}
	return o, nil
}
