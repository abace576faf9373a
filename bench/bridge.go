// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// bridge measures what an operator of controller-runtime gains and pays with crbridge.
type bridge struct {
	parts   string
	objects int // of the memory
	keys    int // of duplicates, and of the rate
	limit   time.Duration
	gets    int
	rounds  int
}

func newBridge() *bridge {
	p := &bridge{}
	flag.StringVar(&p.parts, "bridge", "duplicates,rate,stop,lease,memory,reads", "bridge: the `parts` to run")
	flag.IntVar(&p.objects, "bridge-objects", 10_000, "bridge: `number` of objects in the cache")
	flag.IntVar(&p.keys, "bridge-keys", 100, "bridge: `number` of keys that write")
	flag.DurationVar(&p.limit, "bridge-limit", 15*time.Second, "bridge: `time` in which one worker reconciles")
	flag.IntVar(&p.gets, "bridge-gets", 20_000, "bridge: `number` of cached Gets in each measurement")
	return p
}

// run prints one table: a column for each contestant.
func (p *bridge) run(w *report, rounds int) {
	p.rounds = rounds
	crlog.SetLogger(logr.FromSlogHandler(newLogHandler()))
	if err := p.runIn(context.Background(), w); err != nil {
		w.Flush()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p *bridge) runIn(ctx context.Context, w *report) (err error) {
	fmt.Fprint(w, "an operator\t")
	for _, c := range bridgeContestants {
		fmt.Fprintf(w, "%s\t", c.name)
	}
	fmt.Fprintln(w, "level a, ratio\tlevel b, ratio\tmost\t\t")
	parts := strings.Split(p.parts, ",")
	if !slices.Equal(parts, []string{"reads"}) && !slices.Equal(parts, []string{"memory"}) {
		a, stop, err := newArena(ctx)
		if err != nil {
			return err
		}
		err = p.print(ctx, w, parts, []bridgePart{{"duplicates", p.duplicates(a)}, {"rate", p.rate(a)}, {"stop", p.stop(a)}, {"lease", p.lease(a)}})
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
	}
	return p.print(ctx, w, parts, []bridgePart{{"memory", p.memory}, {"reads", p.reads}})
}

// bridgePart measures some rows of the table.
type bridgePart struct {
	name string
	run  func(ctx context.Context) ([]bridgeRow, error)
}

func (p *bridge) print(ctx context.Context, w *report, names []string, parts []bridgePart) error {
	for _, part := range parts {
		if !slices.Contains(names, part.name) {
			continue
		}
		began := time.Now()
		rows, err := part.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", part.name, time.Since(began).Round(time.Second))
		for _, r := range rows {
			r.print(w)
		}
	}
	return nil
}

// bridgeRow is a line of the table.
type bridgeRow struct {
	title    string
	format   string      // of the values
	values   [][]float64 // by contestant, one for each round
	notes    []string    // by contestant
	compared bool        // print ratios
	most     float64     // bound for the ratio of level b; 0 is none
}

// add adds the values of the next contestant.
func (r *bridgeRow) add(note string, values ...float64) {
	r.values, r.notes = append(r.values, values), append(r.notes, note)
}

func (r *bridgeRow) print(w *report) {
	fmt.Fprintf(w, "%s\t", r.title)
	for i, v := range r.values {
		fmt.Fprintf(w, r.format, median(v))
		if r.notes[i] != "" {
			fmt.Fprintf(w, ", %s", r.notes[i])
		}
		fmt.Fprint(w, "\t")
	}
	if r.compared {
		fmt.Fprintf(w, "%.2f\t%s\t", r.ratio(2), bounded(r.ratio(3), r.most))
	}
	fmt.Fprintln(w)
}

// ratio returns the median of the rounds' ratios of a contestant to the first.
func (r *bridgeRow) ratio(contestant int) float64 {
	var all []float64
	for i, v := range r.values[contestant] {
		all = append(all, v/r.values[0][i])
	}
	return median(all)
}

// bridged runs a func for each contestant at once, each with a namespace of its own.
func (a *arena) bridged(ctx context.Context, run func(ctx context.Context, i int, c bridgeContestant, namespace string) error) error {
	errs := make([]error, len(bridgeContestants))
	var running sync.WaitGroup
	for i, c := range bridgeContestants {
		running.Go(func() {
			namespace, err := a.new(ctx)
			if err == nil {
				err = run(ctx, i, c, namespace)
			}
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.name, err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// manager returns a manager of the contestant for one namespace, whose watches are late by lag.
func (a *arena) manager(c bridgeContestant, namespace string, lag time.Duration) (crmanager.Manager, error) {
	cfg, err := a.proxy.Config()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	if lag > 0 {
		a.proxy.Add(fault.Rule{Match: fault.Match{Config: cfg, Verbs: []string{"watch"}}, Lag: lag})
	}
	return c.managerOf(cfg, namespace, func(*crmanager.Options) {})
}

// managerOf returns a manager of the contestant for one namespace.
func (c bridgeContestant) managerOf(cfg *rest.Config, namespace string, more func(*crmanager.Options)) (crmanager.Manager, error) {
	o := c.options(nil)
	o.Cache.DefaultNamespaces = map[string]crcache.Config{namespace: {}}
	more(&o)
	return c.newManager(cfg, o)
}
