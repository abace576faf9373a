// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"text/tabwriter"
)

// informers is the part that needs a control plane: what it costs to bring a controller's cache up. Each contestant runs in a
// process of its own, this program again, so that its memory and allocations are its own; they take turns.
type informers struct {
	objects    int
	profile    string // a directory; profiles distort what is measured
	contestant string // in a child: who it is
	kubeconfig string // in a child
	same       bool   // in a child: everybody has the same transform
}

func newInformers() *informers {
	p := &informers{}
	flag.IntVar(&p.objects, "objects", 100_000, "informers: how many ConfigMaps there are")
	flag.StringVar(&p.profile, "profile", "", "informers: write processor, allocation and heap profiles to this directory")
	flag.StringVar(&p.contestant, "contestant", "", "informers: measure this one here (used by the program itself)")
	flag.StringVar(&p.kubeconfig, "kubeconfig", "", "informers: use this cluster, and load it if it has no such ConfigMaps; default: start a control plane")
	flag.BoolVar(&p.same, "same", false, "informers: the contestant has the transform of all")
	return p
}

// bounds are at most how much of another's time, allocations and, with each one's defaults, peak memory; 0 is no bound.
type bounds struct {
	name, other             string
	elapsed, allocs, memory float64
}

// targets compare what does the same, those that read without copying and those that copy each object once; and, for the memory,
// what comes without options.
var targets = []bounds{
	{"setpoint, shared", "client-go", 1.05, 1.1, 1.0},
	{"setpoint", "client-go, copying", 1.05, 1.1, 1.0},
	{"setpoint", "client-go", 0, 0, 1.0},
	{"setpoint", "controller-runtime", 0, 0, 0.8},
	{"controller-runtime", "client-go, copying", 0, 0, 0},
}

// run prints the figures of all. It starts a control plane, unless there is one.
func (p *informers) run(w *tabwriter.Writer, rounds int) {
	dir, err := os.MkdirTemp("", "bench")
	if err == nil {
		err = errors.Join(p.runIn(dir, w, rounds), os.RemoveAll(dir))
	}
	if err != nil {
		w.Flush()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p *informers) runIn(dir string, w *tabwriter.Writer, rounds int) (err error) {
	ctx := context.Background()
	stop := func() error { return nil }
	if p.kubeconfig == "" {
		p.kubeconfig = filepath.Join(dir, "kubeconfig")
		if stop, err = startControlPlane(ctx, p.kubeconfig); err != nil {
			return err
		}
	}
	defer func() {
		if failed := stop(); err == nil {
			err = failed
		}
	}()
	if err := load(ctx, p.kubeconfig, p.objects); err != nil {
		return err
	}
	for _, same := range []bool{true, false} {
		if p.same = same; rounds == 0 {
			break
		}
		results, err := p.takeTurns(ctx, rounds)
		if err != nil {
			return err
		}
		p.print(w, results)
		w.Flush()
	}
	for _, c := range upkeep {
		r, err := p.child(ctx, c.name)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, r.Row)
		w.Flush()
	}
	return nil
}

// takeTurns runs every contestant once a round. Nobody always comes first.
func (p *informers) takeTurns(ctx context.Context, rounds int) (map[string][]usage, error) {
	results := map[string][]usage{}
	for round := range rounds {
		for i := range contestants {
			name := contestants[(i+round)%len(contestants)].name
			r, err := p.child(ctx, name)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "round %d, same transform: %t, %s: %s\n", round+1, p.same, name, r)
			results[name] = append(results[name], r)
		}
	}
	return results, nil
}

// child runs a contestant in a process of its own.
func (p *informers) child(ctx context.Context, name string) (usage, error) {
	self, err := os.Executable()
	if err != nil {
		return usage{}, err
	}
	cmd := exec.CommandContext(ctx, self, "-contestant", name, "-kubeconfig", p.kubeconfig, "-objects", strconv.Itoa(p.objects),
		"-same="+strconv.FormatBool(p.same), "-profile", p.profile)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return usage{}, fmt.Errorf("%s: %w", name, err)
	}
	var r usage
	if err := json.Unmarshal(out, &r); err != nil {
		return usage{}, fmt.Errorf("%s: %w in %q", name, err, out)
	}
	return r, nil
}

func (p *informers) print(w *tabwriter.Writer, results map[string][]usage) {
	how := "each one's defaults"
	if p.same {
		how = "the same transform for all"
	}
	fmt.Fprintf(w, "%d ConfigMaps of 1 KB, 10 workers, %s\ttime\tprocessor\tallocations\tallocated\tpeak memory\t\n", p.objects, how)
	for _, c := range contestants {
		m := medianOf(results[c.name])
		fmt.Fprintf(w, "%s\t%.2f s\t%.2f s\t%.2f M\t%.0f MB\t%.0f MB\t\n", c.name, m.Seconds, m.Processor, m.Mallocs/1e6, m.Allocated/1e6, m.Peak/1e6)
	}
	fmt.Fprintln(w, "\nratio\ttime\tmost\t\tprocessor\tallocations\tmost\t\tpeak memory\tmost\t\t")
	for _, b := range targets {
		memory := b.memory
		if p.same {
			memory = 0
		}
		ratio := func(of func(usage) float64) float64 { return ratioOf(results[b.name], results[b.other], of) }
		fmt.Fprintf(w, "%s : %s\t%s\t%.2f\t%s\t%s\t\n", b.name, b.other,
			bounded(ratio(usage.seconds), b.elapsed), ratio(usage.processor), bounded(ratio(usage.mallocs), b.allocs), bounded(ratio(usage.peak), memory))
	}
	fmt.Fprintln(w)
}

func bounded(ratio, most float64) string {
	if most == 0 {
		return fmt.Sprintf("%.2f\t\t", ratio)
	}
	return fmt.Sprintf("%.2f\t%.2f\t%s", ratio, most, verdict(ratio <= most))
}

// ratioOf is the median of each round's ratio.
func ratioOf(a, b []usage, of func(usage) float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = of(a[i]) / of(b[i])
	}
	return median(ratios)
}
