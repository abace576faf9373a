// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
)

// fairness measures how long a namespace with few keys waits behind one with many, see tenants. It
// also measures how many keys are reconciled before a user's change, with each framework's
// defaults. It does so during the initial list, while its Reconciles fail, and while a change of
// every object fails.
type fairness struct {
	keys, changes int
	limit         time.Duration
	kubeconfig    *string
	part          string
}

func newFairness(p *informers) *fairness {
	f := &fairness{kubeconfig: &p.kubeconfig}
	flag.IntVar(&f.keys, "crowd", 50_000, "fairness: `number` of keys")
	flag.IntVar(&f.changes, "changes", 20, "fairness: `number` of changes, one after the other")
	flag.StringVar(&f.part, "fairness", "", "fairness: the `part` to run, tenants or changes (default: both)")
	flag.DurationVar(&f.limit, "fairness-limit", 2*time.Minute, "fairness: `timeout` of each situation")
	return f
}

const (
	fairWorkers   = 4
	fairReconcile = time.Millisecond
	mostBefore    = 60 // bound of keys reconciled between a user's change and its Reconcile
)

// situation is the state of the other keys when the user's change arrives.
type situation struct {
	name    string
	failing bool // all other keys fail
	changed bool // every key was added by a change after the initial list
}

var situations = []situation{
	{"initial list", false, false},
	{"initial list, all fail", true, false},
	{"changes of all, all fail", true, true},
}

// run prints all figures. For changes it starts a control plane, unless there is a kubeconfig.
func (f *fairness) run(w *report, _ int) {
	crlog.SetLogger(quietLog)
	var err error
	if f.part != "changes" {
		err = f.tenants(context.Background(), w)
	}
	if err == nil && f.part != "tenants" {
		err = f.runInTemp(w)
	}
	if err != nil {
		w.Flush()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (f *fairness) runInTemp(w *report) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	return errors.Join(f.runIn(dir, w), os.RemoveAll(dir))
}

func (f *fairness) runIn(dir string, w *report) (err error) {
	ctx := context.Background()
	if *f.kubeconfig == "" {
		*f.kubeconfig = filepath.Join(dir, "kubeconfig")
		stop, err := startControlPlane(ctx, *f.kubeconfig)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := load(ctx, *f.kubeconfig, f.keys); err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", *f.kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	fmt.Fprintf(w, "%d keys, %d workers, %s each\tkeys before a change: median\tmost\tsince its event: median\tmost\tof changes\tbound\t\t\n",
		f.keys, fairWorkers, fairReconcile)
	for _, s := range situations {
		for _, c := range fairContestants {
			if err := f.measure(ctx, w, cfg, s, c); err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, s.name, err)
			}
		}
	}
	return nil
}

func (f *fairness) measure(ctx context.Context, w *report, cfg *rest.Config, s situation, c fairContestant) error {
	ctx, cancel := context.WithTimeout(ctx, f.limit)
	defer cancel()
	cr := newCrowd(f.keys, s)
	var running sync.WaitGroup
	var failed error
	running.Go(func() {
		failed = c.run(ctx, cfg, cr)
		cancel()
	})
	err := f.change(ctx, cfg, cr)
	cancel()
	running.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if len(cr.sinceWrite) == 0 {
		return errors.New("timeout before the first change")
	}
	w.keep(fairnessChart, s.name, c.name, cr.sinceWrite)
	ours, verdictOf := c.name == "setpoint", ""
	if ours {
		verdictOf = fmt.Sprintf("%d\t%s", mostBefore, verdict(median(cr.sinceWrite) <= mostBefore))
	}
	fmt.Fprintf(w, "%s, %s\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t%s\t\n", c.name, s.name, median(cr.sinceWrite), slices.Max(cr.sinceWrite),
		median(cr.sinceEvent), slices.Max(cr.sinceEvent), len(cr.sinceWrite), verdictOf)
	w.Flush()
	return nil
}

// change changes objects one by one. For each it counts the Reconciles until the one of the changed
// object. If the time is over before that, it takes the count so far.
func (f *fairness) change(ctx context.Context, cfg *rest.Config, cr *crowd) error {
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	first := 0
	if cr.changed { // earlier Reconciles have not failed yet
		first = f.keys * 3 / 2 // every fifth is a retry
	}
	for i := range f.changes {
		cr.waitFor(ctx, int64(first+1000*(i+1)))
		n := (i*2 + 1) * f.keys / (2 * f.changes)
		token := strconv.FormatInt(time.Now().UnixNano(), 36)
		cr.expect(key{Namespace: namespaceOf(n), Name: objectOf(n)}, token)
		patch := fmt.Appendf(nil, `{"data":{"change":%q}}`, token)
		if ctx.Err() != nil {
			return nil
		}
		_, err := c.CoreV1().ConfigMaps(namespaceOf(n)).Patch(context.WithoutCancel(ctx), objectOf(n), types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return err
		}
		select {
		case <-cr.seen:
		case <-ctx.Done():
			cr.giveUp()
			return nil
		}
	}
	return nil
}

// crowd is the shared state of all Reconciles of a situation.
type crowd struct {
	situation
	keys []key
	runs atomic.Int64
	seen chan struct{} // receives when the changed object was reconciled

	mu         sync.Mutex // guards the fields below
	key        key
	token      string // in the changed object; empty: none is expected
	written    int64  // runs at its change
	arrived    int64  // runs at its event; -1: no event yet
	sinceWrite []float64
	sinceEvent []float64
}

func newCrowd(n int, s situation) *crowd {
	c := &crowd{situation: s, seen: make(chan struct{}, 1)}
	for i := range n {
		c.keys = append(c.keys, key{Namespace: namespaceOf(i), Name: objectOf(i)})
	}
	return c
}

// waitFor waits for n Reconciles.
func (c *crowd) waitFor(ctx context.Context, n int64) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c.runs.Load() < n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// expect must be called before an object is changed.
func (c *crowd) expect(k key, token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.key, c.token, c.written, c.arrived = k, token, c.runs.Load(), -1
}

// event is called with each new state of an object, before its key is queued.
func (c *crowd) event(o *corev1.ConfigMap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" && o.Data["change"] == c.token {
		c.arrived = c.runs.Load()
	}
}

var errCrowd = errors.New("all other keys fail")

// reconcile is every contestant's Reconcile.
func (c *crowd) reconcile(o *corev1.ConfigMap) error {
	n := c.runs.Add(1) - 1
	if c.isChanged(o, n) {
		c.seen <- struct{}{}
		return nil
	}
	time.Sleep(fairReconcile)
	if c.failing {
		return errCrowd
	}
	return nil
}

func (c *crowd) isChanged(o *corev1.ConfigMap, n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == "" || o.Data["change"] != c.token {
		return false
	}
	c.countLocked(n)
	return true
}

// giveUp counts a change that was not reconciled in time.
func (c *crowd) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" {
		c.countLocked(c.runs.Load())
	}
}

func (c *crowd) countLocked(n int64) {
	arrived := c.arrived
	if arrived < 0 {
		arrived = n // the object was read before its event was handled
	}
	c.sinceWrite = append(c.sinceWrite, float64(n-c.written))
	c.sinceEvent = append(c.sinceEvent, float64(max(0, n-arrived)))
	c.token = ""
}
