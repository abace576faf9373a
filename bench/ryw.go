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
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// ownWrites measures how controllers cope with a cache that is older than their own writes: a storm
// against a control plane with late watches, next to keys that do not write.
type ownWrites struct {
	keys, cycles, quiet int
	lag, limit          time.Duration
	kubeconfig          *string
}

func newOwnWrites(p *informers) *ownWrites {
	o := &ownWrites{kubeconfig: &p.kubeconfig}
	flag.IntVar(&o.keys, "keys", 200, "ryw: `number` of keys that write")
	flag.IntVar(&o.cycles, "cycles", 10_000, "ryw: total `number` of their cycles")
	flag.IntVar(&o.quiet, "quiet", 20, "ryw: `number` of keys that do not write")
	flag.DurationVar(&o.lag, "lag", 500*time.Millisecond, "ryw: `delay` of the watches")
	flag.DurationVar(&o.limit, "limit", 3*time.Minute, "ryw: `timeout` of each contestant")
	return o
}

// leastQuiet is the least fraction of their undelayed rate that quiet keys keep.
const leastQuiet = 0.9

// run prints all figures. It starts a control plane, unless there is a kubeconfig.
func (o *ownWrites) run(w *report, _ int) {
	crlog.SetLogger(logr.FromSlogHandler(newLogHandler()))
	dir, err := os.MkdirTemp("", "bench")
	if err == nil {
		err = errors.Join(o.runIn(dir, w), os.RemoveAll(dir))
	}
	if err != nil {
		w.Flush()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o *ownWrites) runIn(dir string, w *report) (err error) {
	ctx := context.Background()
	if *o.kubeconfig == "" {
		*o.kubeconfig = filepath.Join(dir, "kubeconfig")
		stop, err := startControlPlane(ctx, *o.kubeconfig)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", *o.kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	fmt.Fprintf(w, "%d keys, %d workers\twatches\tcycles\tof\ttime\treconciles\tstale\trefused\texpired\tin doubt\tquiet\tof calm\tof undelayed\tleast\t\t\n", o.keys, workersOfEach)
	for _, s := range stormers {
		if err := o.compare(ctx, w, cfg, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// weather is a set of conditions.
type weather struct {
	name   string
	lag    time.Duration
	cycles int // of each key
	limit  time.Duration
}

// compare runs a contestant in the calm, in a storm with undelayed watches, and in a storm with
// late watches.
func (o *ownWrites) compare(ctx context.Context, w *report, cfg *rest.Config, s stormer) error {
	cycles := max(o.cycles/o.keys, 1)
	weathers := []weather{{"calm", 0, 0, 5 * time.Second}, {"undelayed", 0, cycles, o.limit}, {o.lag.String() + " late", o.lag, cycles, o.limit}}
	rates := make([]float64, len(weathers))
	for i, weather := range weathers {
		st := newStorm(o.keys, weather.cycles, o.quiet, workersOfEach)
		took, rate, err := st.through(ctx, cfg, weather, s)
		if err != nil {
			return err
		}
		rates[i] = rate
		fmt.Fprintf(os.Stderr, "%s, %s: %d cycles in %s\n", s.name, weather.name, st.cycled.Load(), took.Round(time.Millisecond))
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.1f s\t%d\t%d\t%d\t%d\t%d\t%.0f/s\t", s.name, weather.name, st.cycled.Load(), o.keys*weather.cycles,
			took.Seconds(), st.runs.Load(), st.stale.Load(), st.refused.Load(), st.expired.Load(), st.doubted.Load(), rate)
		if weather.lag == 0 {
			fmt.Fprintln(w, "\t\t\t\t")
			continue
		}
		ok := st.stale.Load() == 0 && st.expired.Load() == 0 && st.finished() && rate >= leastQuiet*rates[1]
		fmt.Fprintf(w, "%.2f\t%.2f\t%.1f\t%s\t\n", rate/rates[0], rate/rates[1], leastQuiet, verdict(ok))
	}
	return nil
}

// through runs a contestant against an API server with late watches, until the storm or the time is
// over. It returns the duration and the rate of quiet Reconciles per second.
func (st *storm) through(ctx context.Context, cfg *rest.Config, sky weather, s stormer) (took time.Duration, rate float64, err error) {
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return 0, 0, err
	}
	if err := st.prepare(ctx, c); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, st.clear(context.WithoutCancel(ctx), c)) }()
	proxy, err := fault.Start(ctx, cfg, fault.Options{})
	if err != nil {
		return 0, 0, err
	}
	defer proxy.Stop()
	late, err := proxy.Config()
	if err != nil {
		return 0, 0, err
	}
	late.QPS = -1
	if sky.lag > 0 {
		proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Lag: sky.lag})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limited, expire := context.WithTimeout(ctx, sky.limit)
	defer expire()
	var running sync.WaitGroup
	var failed error
	running.Go(func() {
		defer cancel()
		failed = s.run(limited, late, st)
	})
	select {
	case <-st.over:
	case <-limited.Done():
	}
	ended, quiet := time.Now(), st.quietRuns.Load()
	expire()
	running.Wait()
	took = ended.Sub(st.began)
	return took, float64(quiet) / took.Seconds(), failed
}

// prepare creates the objects.
func (st *storm) prepare(ctx context.Context, c kubernetes.Interface) error {
	if err := st.clear(ctx, c); err != nil {
		return err
	}
	for i := range st.keys {
		if _, err := c.AppsV1().Deployments(stormNamespace).Create(ctx, stormObject(loudName(i)), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range st.quiet {
		if _, err := c.AppsV1().Deployments(stormNamespace).Create(ctx, stormObject(quietName(i)), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (st *storm) clear(ctx context.Context, c kubernetes.Interface) error {
	return errors.Join(
		c.AppsV1().Deployments(stormNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		c.CoreV1().ConfigMaps(stormNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}
