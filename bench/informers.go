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
)

// informers measures the cost of bringing up a controller's cache, against a control plane. Each
// contestant runs in its own process, which executes this program, to measure its memory and
// allocations separately. They take turns.
type informers struct {
	objects    int
	profile    string // a directory; profiles distort the figures
	contestant string // in a child: its name
	kubeconfig string // in a child
	same       bool   // in a child: all have the same transform
}

func newInformers() *informers {
	p := &informers{}
	flag.IntVar(&p.objects, "objects", 100_000, "informers: `number` of ConfigMaps")
	flag.StringVar(&p.profile, "profile", "", "informers, reconcile: write profiles to this `directory`")
	flag.StringVar(&p.contestant, "contestant", "", "informers: measure the contestant of this `name` here (internal)")
	flag.StringVar(&p.kubeconfig, "kubeconfig", "", "informers, ryw, fairness: `file` of the cluster to use, loaded with ConfigMaps if needed; default: start a control plane")
	flag.BoolVar(&p.same, "same", false, "informers: use the common transform (internal)")
	return p
}

// bounds limit the time, allocations and, with defaults, peak memory, relative to another
// contestant; 0 is no bound.
type bounds struct {
	name, other             string
	elapsed, allocs, memory float64
}

// targets compare equal work: contestants that read without copying, and those that copy each
// object once. For memory they compare the defaults.
var targets = []bounds{
	{"setpoint, shared", "client-go", 1.05, 1.1, 1.0},
	{"setpoint", "client-go, copying", 1.05, 1.1, 1.0},
	{"setpoint", "client-go", 0, 0, 1.0},
	{"setpoint", "controller-runtime", 0, 0, 0.8},
	{"controller-runtime", "client-go, copying", 0, 0, 0},
}

// run prints all figures. It starts a control plane, unless there is a kubeconfig.
func (p *informers) run(w *report, rounds int) {
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

func (p *informers) runIn(dir string, w *report, rounds int) (err error) {
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

// takeTurns runs every contestant once a round, starting with a different one each time.
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

// child runs a contestant in its own process.
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

func (p *informers) print(w *report, results map[string][]usage) {
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

// ratioOf returns the median of the rounds' ratios.
func ratioOf(a, b []usage, of func(usage) float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = of(a[i]) / of(b[i])
	}
	return median(ratios)
}
