// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// packed measures caches that keep objects as bytes, beside client-go and controller-runtime. Each
// contestant runs in its own process and reads from an API server in this one. They take turns.
type packed struct {
	shared      *informers // has the number of objects and the profiles' directory
	jobs        string
	kinds       string
	contestants string
	child       string // in a child: its orders as JSON
}

func newPacked(shared *informers) *packed {
	p := &packed{shared: shared}
	flag.StringVar(&p.jobs, "packed-jobs", "hold,work,index,both,lean,trim", "packed: `jobs` to measure; work-typed and work-unstructured are slower")
	flag.StringVar(&p.kinds, "packed-kinds", "pods,configmaps,typed,unstructured,nodes", "packed: `kinds` to measure")
	flag.StringVar(&p.contestants, "packed-contestants", "", "packed: `names` of the contestants to measure, separated by semicolons (default: all)")
	flag.StringVar(&p.child, "packed-child", "", "packed: `orders` of a child (internal)")
	return p
}

// scene is a job over the objects of a server, and the rows that it yields.
type scene struct {
	name   string // of the flag
	job    job
	kind   string
	serves map[string]float64 // kinds, and their numbers relative to -objects
	rows   []packedRow
}

// packedRow is a figure of all contestants.
type packedRow struct {
	title, figure string
	format        string  // of the figure times unit
	unit          float64 // 1e-6 for MB
	bases         []packedBase
	limit         float64 // of the figure of setpoint, packed; 0 is none
}

// packedBase is a contestant to compare with, and the greatest ratio that setpoint, packed, may
// have; 0 is no bound.
type packedBase struct {
	name string
	most float64
}

func holdScene(kind string, most float64, more ...packedRow) scene {
	bases := []packedBase{{clientGoName, most}, {runtimeName, most}, {clientGoBare, 0}, {runtimeBare, 0}}
	return scene{"hold", hold, kind, map[string]float64{kind: 1}, append([]packedRow{{"heap after sync", heapFigure, "%.1f MB", 1e-6, bases, 0}}, more...)}
}

func workScene(name, kind string) scene {
	bases := func(goMost, runtimeMost float64) []packedBase {
		return []packedBase{{clientGoName, goMost}, {runtimeName, runtimeMost}, {copyingName, 0}}
	}
	return scene{name, work, kind, map[string]float64{kind: 1}, []packedRow{
		{"time until all are reconciled, one Get each", secondsFigure, "%.2f s", 1, bases(0.8, 0.6), 0},
		{"processor time until then", cpuFigure, "%.2f s", 1, bases(0, 0), 0},
		{"processor time per update, reconciled with one Get", updateFigure, "%.1f µs", 1e6, bases(0.9, 0.75), 0},
		{"processor time per update of a status, dropped by a predicate", droppedFigure, "%.1f µs", 1e6, bases(0.6, 0.6), 0},
		{"processor time per Get, in random order", readFigure, "%.1f µs", 1e6, nil, 0},
	}}
}

// scenes are the measurements with the bounds of the packed form.
func (p *packed) scenes() []scene {
	one := map[string]float64{"pods": 1}
	compared := func(most float64) []packedBase { return []packedBase{{clientGoName, most}, {runtimeName, most}} }
	peaks := packedRow{"peak resident memory of the first sync", peakFigure, "%.0f MB", 1e-6, []packedBase{
		{clientGoName, 0.5}, {runtimeName, 0.4}, {clientGoBare, 0}, {runtimeBare, 0},
	}, 0}
	limit := 600e6 * float64(p.shared.objects) / 100_000
	return []scene{
		holdScene("pods", 0.35, peaks), holdScene("configmaps", 0.5), holdScene("typed", 0.4), holdScene("unstructured", 0.15),
		workScene("work", "pods"), workScene("work-typed", "typed"), workScene("work-unstructured", "unstructured"),
		leanScene("pods"), leanScene("configmaps"),
		{"index", index, "pods", one, []packedRow{
			{"list by index, copies: a hundredth of the objects", listFigure, "%.2f ms", 1e3, compared(2), 0},
			{"processor time of that list", listCPUFigure, "%.2f ms", 1e3, compared(0), 0},
		}},
		{"both", both, "pods", map[string]float64{"pods": 1, "configmaps": 2.5}, []packedRow{
			{"peak resident memory, with 2.5 ConfigMaps for each Pod", peakFigure, "%.0f MB", 1e-6, nil, limit},
			{"live heap of that", heapFigure, "%.0f MB", 1e-6, nil, 0},
			{"time of that sync", secondsFigure, "%.2f s", 1, nil, 0},
		}},
		trimScene(),
	}
}

// run prints all tables.
func (p *packed) run(w *report, rounds int) {
	if err := p.compare(w, rounds); err != nil {
		w.Flush()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p *packed) compare(w *report, rounds int) error {
	if err := printSizes(w); err != nil {
		return err
	}
	for _, s := range p.scenes() {
		if !slices.Contains(strings.Split(p.jobs, ","), s.name) || !slices.Contains(strings.Split(p.kinds, ","), strings.TrimPrefix(s.kind, "lean ")) {
			continue
		}
		names := p.names(s.job, s.kind)
		results, err := p.measure(s, names, rounds)
		if err != nil {
			return err
		}
		objects := int(s.serves[s.kind] * float64(p.shared.objects))
		for _, row := range s.rows {
			row.print(w, fmt.Sprintf("%s, %d %s", row.title, objects, packedKindOf(s.kind).title), names, results, float64(objects))
			w.Flush()
		}
	}
	return nil
}

// printSizes prints the sizes of the objects and their managedFields.
func printSizes(w *report) error {
	s := newPackedServer(0)
	size := func(k *packedKind, form string, bare bool) (int, error) {
		o := k.object(12345, created)
		if bare {
			_, _ = dropManagedFields(o)
		}
		info, _ := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), form)
		raw, err := runtime.Encode(s.codecs.EncoderForVersion(info.Serializer, k.gvk.GroupVersion()), o)
		return len(raw), err
	}
	fmt.Fprintln(w, "bytes of an object\tJSON\tof them managedFields\tprotobuf\tof them managedFields\t")
	for _, k := range append(slices.Clone(packedKinds[:3]), nodesKind) {
		fmt.Fprint(w, strings.TrimSuffix(k.title, ", typed"))
		for _, form := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			if form == runtime.ContentTypeProtobuf && k.gvk.Group != "" {
				continue
			}
			all, err := size(k, form, false)
			if err != nil {
				return err
			}
			bare, err := size(k, form, true)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "\t%d\t%d", all, all-bare)
		}
		fmt.Fprintln(w, "\t")
	}
	fmt.Fprintln(w)
	return nil
}

// names returns the contestants of a job that are wanted.
func (p *packed) names(of job, kind string) []string {
	var names []string
	for _, c := range packedContestants {
		if kind != "pods" && indexesPods(c.name) {
			continue
		}
		if c.jobs[of] != nil && (p.contestants == "" || slices.Contains(strings.Split(p.contestants, ";"), c.name)) {
			names = append(names, c.name)
		}
	}
	return names
}

func indexesPods(contestant string) bool { return strings.Contains(contestant, ", index") }

// measure runs every contestant once a round, starting with a different one each time.
func (p *packed) measure(s scene, names []string, rounds int) (map[string][]figures, error) {
	orders := packedOrders{Job: s.job, Kind: s.kind, Objects: p.shared.objects, Events: p.shared.objects / 2, Profile: p.shared.profile}
	var served []servedKind
	for name, times := range s.serves {
		served = append(served, servedKind{packedKind: packedKindOf(name), objects: int(times * float64(orders.Objects))})
	}
	server := newPackedServer(orders.Events, served...)
	if err := server.warm(s.job == work || s.job == lean); err != nil {
		return nil, err
	}
	debug.FreeOSMemory() // no collection of what the encoders left, while a child runs
	listener := httptest.NewServer(server)
	defer listener.Close()
	orders.Server = listener.URL
	results := map[string][]figures{}
	for round := range rounds {
		for i := range names {
			orders.Contestant = names[(i+round)%len(names)]
			f, err := orders.child(context.Background())
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "round %d, %s %s, %q: %v\n", round+1, s.job, s.kind, orders.Contestant, f)
			results[orders.Contestant] = append(results[orders.Contestant], f)
		}
	}
	return results, nil
}

// child runs a contestant in its own process.
func (o packedOrders) child(ctx context.Context) (f figures, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	orders, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-packed-child", string(orders))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s, %s: %w", o.Job, o.Kind, o.Contestant, err)
	}
	return f, json.Unmarshal(out, &f)
}

// print prints a row: each contestant's median, its spread, and its ratios.
func (row packedRow) print(w *report, title string, names []string, results map[string][]figures, objects float64) {
	fmt.Fprintf(w, "%s\tmedian\tleast–most\t", title)
	for _, b := range row.bases {
		fmt.Fprintf(w, ": %s\t", b.name)
	}
	fmt.Fprintln(w)
	for _, name := range names {
		var v []float64
		for _, f := range results[name] {
			v = append(v, f[row.figure])
		}
		m := median(v)
		w.keep(packedChart, title, name, scaled(v, row.unit))
		fmt.Fprintf(w, "%s\t"+row.format, name, m*row.unit)
		if row.figure == heapFigure && row.bases != nil {
			fmt.Fprintf(w, ", %.0f B each", m/objects)
		}
		if row.limit > 0 && name == packedName {
			fmt.Fprintf(w, " (≤ "+row.format+" %s)", row.limit*row.unit, verdict(m <= row.limit))
		}
		fmt.Fprintf(w, "\t"+row.format+"–"+row.format+"\t", slices.Min(v)*row.unit, slices.Max(v)*row.unit)
		for _, b := range row.bases {
			fmt.Fprint(w, row.ratio(name, b, results), "\t")
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

func scaled(values []float64, unit float64) (scaled []float64) {
	for _, v := range values {
		scaled = append(scaled, v*unit)
	}
	return scaled
}

// ratio returns the median of the rounds' ratios, and the bound of the packed form.
func (row packedRow) ratio(name string, b packedBase, results map[string][]figures) string {
	base := results[b.name]
	if len(base) == 0 {
		return ""
	}
	var v []float64
	for i, f := range results[name] {
		v = append(v, f[row.figure]/base[i][row.figure])
	}
	if name != packedName || b.most == 0 {
		return fmt.Sprintf("%.2f", median(v))
	}
	return fmt.Sprintf("%.2f (≤ %.2f %s)", median(v), b.most, verdict(median(v) <= b.most))
}
