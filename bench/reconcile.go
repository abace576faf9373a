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
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/setpoint-dev/setpoint/internal/fakeapi"
)

// reconciles is what a Reconcile costs that does nothing, from the moment at which its key is made due until it is settled. In it,
// the object is read from the cache. There are as many objects as there are mills; half of their keys are queued at any time.
type reconciles struct {
	deliveries int64
	profile    *string // a directory
}

func newReconciles(p *informers) *reconciles {
	r := &reconciles{profile: &p.profile}
	flag.Int64Var(&r.deliveries, "deliveries", 200_000, "reconcile: how many Reconciles each measurement has")
	return r
}

// reconcileTargets are at most how much of another's time; 0 is no bound. Beside a hand-written loop a Reconcile pays for
// its clock and its logger (designs/0009); the bound is what users have today.
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
}

// run prints the figures of all.
func (r *reconciles) run(w *tabwriter.Writer, rounds int) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // starts and stops are logged
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

// takeTurns runs every contestant once a round. Nobody always comes first.
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

func (r *reconciles) print(w *tabwriter.Writer, workers int, results map[string][]result) {
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

// measure runs one contestant, with an API server of its own.
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
	if err := work(20_000); err != nil { // so that everything has grown to its size
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

// mills is how many objects there are.
const mills = 1000

// mill keeps the keys of its objects coming: each Reconcile makes another one due, that of an object that was settled half a round
// ago.
type mill struct {
	api  *fakeapi.Server
	add  func(i int)   // makes the i-th object's key due; set by the contestant before its first Reconcile
	done chan struct{} // is sent to when all that is expected was delivered

	delivered, adding, expected atomic.Int64
}

func newMill() *mill {
	m := &mill{api: fakeapi.New(fakeapi.ConfigMaps), done: make(chan struct{}, 1)}
	for i := range mills {
		m.api.Put(fakeapi.ConfigMaps, &corev1.ConfigMap{
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

// expect is called while nothing is due: deliveries are to come, the first of which each make another key due.
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
		return errors.Join(fmt.Errorf("it ended after %d of %d deliveries", m.delivered.Load(), m.expected.Load()), err)
	}
}

// reconciled is called in every Reconcile with what was read.
func (m *mill) reconciled(o *corev1.ConfigMap) error {
	if len(o.Data) != 1 {
		return errors.New("it is not what was stored")
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
