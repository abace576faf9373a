// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// reconciles measures the cost of a no-op Reconcile, from the moment its key is due until it is
// settled. The Reconcile reads the object from the cache. There are mills objects; half of their
// keys are queued at any time.
type reconciles struct {
	deliveries int64
	profile    *string // a directory
}

func newReconciles(p *informers) *reconciles {
	r := &reconciles{profile: &p.profile}
	flag.Int64Var(&r.deliveries, "deliveries", 200_000, "reconcile: `number` of Reconciles in each measurement")
	return r
}

// reconcileTargets bound the time relative to another contestant; 0 is no bound. Compared with a
// hand-written loop, a Reconcile pays for its clock and logger (designs/0009). The bound compares
// with what users have today.
var reconcileTargets = []struct {
	name, other string
	most        float64
}{
	{"setpoint", "careful loop", 0},
	{"setpoint, shared", "barest loop", 0},
	{"setpoint", "controller-runtime", 0.5},
	{"setpoint, shared", "controller-runtime", 0.5},
	{"setpoint, shared", "barest loop, string keys", 0},
	{"careful loop", "barest loop", 0},
	{"crbridge, level a", "controller-runtime", 0},
	{"crbridge, level b, decoded", "controller-runtime", 0.7},
	{"crbridge, level b, packed (default)", "controller-runtime", 0.7},
}

// run prints all figures.
func (r *reconciles) run(w *report, rounds int) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // discards logs of starts and stops
	crlog.SetLogger(klog.Background())
	for _, workers := range []int{1, 8} {
		results, err := r.takeTurns(rounds, workers)
		if err != nil {
			w.Flush()
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		r.print(w, workers, results)
		w.Flush()
	}
}

// takeTurns runs every contestant once a round, starting with a different one each time.
func (r *reconciles) takeTurns(rounds, workers int) (map[string][]result, error) {
	results := map[string][]result{}
	for round := range rounds {
		for i := range loops {
			l := loops[(i+round)%len(loops)]
			res, err := r.measure(l, workers)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			results[l.name] = append(results[l.name], res)
		}
	}
	return results, nil
}

func (r *reconciles) print(w *report, workers int, results map[string][]result) {
	fmt.Fprintf(w, "no-op reconcile, queue to queue, workers: %d\ttime\tallocations\t\n", workers)
	medianOf := func(name string, of func(result) float64) float64 {
		var vs []float64
		for _, r := range results[name] {
			vs = append(vs, of(r))
		}
		return median(vs)
	}
	ns, allocs := func(r result) float64 { return r.ns }, func(r result) float64 { return r.allocs }
	for _, l := range loops {
		fmt.Fprintf(w, "%s\t%.0f ns\t%.1f\t\n", l.name, medianOf(l.name, ns), medianOf(l.name, allocs))
	}
	fmt.Fprintln(w, "\nratio\ttime\tmost\t\t")
	for _, t := range reconcileTargets {
		var ratios []float64
		for i, r := range results[t.name] {
			ratios = append(ratios, r.ns/results[t.other][i].ns)
		}
		fmt.Fprintf(w, "%s : %s\t%s\t\n", t.name, t.other, bounded(median(ratios), t.most))
	}
	fmt.Fprintln(w)
}

// measure runs one contestant, with its own API server.
func (r *reconciles) measure(l loop, workers int) (res result, err error) {
	m := newMill()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	m.expect(mills, 0) // the initial list
	go func() { ended <- l.run(ctx, m, workers) }()
	if err := m.wait(ended); err != nil {
		return res, err
	}
	work := func(n int64) error {
		m.expect(n, n-mills/2)
		for i := range mills / 2 {
			m.add(i)
		}
		return m.wait(ended)
	}
	if err := work(20_000); err != nil { // all buffers grow to their size
		return res, err
	}
	profiled, err := r.startProfile(fmt.Sprintf("%s %d", l.name, workers))
	if err != nil {
		return res, err
	}
	res = timed(int(r.deliveries), func() { err = work(r.deliveries) })
	err = errors.Join(err, profiled())
	cancel()
	return res, errors.Join(err, <-ended)
}

func (r *reconciles) startProfile(name string) (stop func() error, err error) {
	if *r.profile == "" {
		return func() error { return nil }, nil
	}
	name = strings.NewReplacer(", ", "-", " ", "-").Replace(name)
	f, err := os.Create(filepath.Join(*r.profile, "reconcile-"+name+".pprof"))
	if err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, pprof.StartCPUProfile(f)
}

// mills is the number of objects.
const mills = 1000

// mill keeps keys coming: each Reconcile makes another key due, of an object that was settled half
// a round ago.
type mill struct {
	api  *sim.Server
	add  func(i int)   // makes the i-th key due; set by the contestant before its first Reconcile
	done chan struct{} // receives when all expected deliveries have happened

	delivered, adding, expected atomic.Int64
}

func newMill() *mill {
	m := &mill{api: sim.NewServer(sim.ConfigMaps), done: make(chan struct{}, 1)}
	for i := range mills {
		m.api.Put(sim.ConfigMaps, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "bench", Name: millName(i),
				Labels: map[string]string{"app.kubernetes.io/name": millName(i), "app.kubernetes.io/managed-by": "bench"},
			},
			Data: map[string]string{"text": strings.Repeat("0123456789", 100)},
		})
	}
	return m
}

func millName(i int) string { return fmt.Sprintf("object-%03d", i) }

func millKey(i int) key { return key{Namespace: "bench", Name: millName(i)} }

// expect must be called while nothing is due. The first of the expected deliveries, adding of them,
// each make another key due.
func (m *mill) expect(deliveries, adding int64) {
	m.delivered.Store(0)
	m.adding.Store(adding)
	m.expected.Store(deliveries)
}

func (m *mill) wait(ended <-chan error) error {
	select {
	case <-m.done:
		return nil
	case err := <-ended:
		return errors.Join(fmt.Errorf("the contestant ended after %d of %d deliveries", m.delivered.Load(), m.expected.Load()), err)
	}
}

// reconciled is called in every Reconcile with the object read.
func (m *mill) reconciled(o *corev1.ConfigMap) error {
	if len(o.Data) != 1 {
		return errors.New("the object differs from the stored one")
	}
	i, err := strconv.Atoi(o.Name[len("object-"):])
	if err != nil {
		return err
	}
	n := m.delivered.Add(1)
	if n <= m.adding.Load() {
		m.add((i + mills/2) % mills)
	}
	if n == m.expected.Load() {
		m.done <- struct{}{}
	}
	return nil
}
