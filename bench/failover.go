// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// failover measures how long an operator does not work when its leader is stopped or killed, what
// its Lease costs, and how long it takes to stop before it ever worked.
type failover struct {
	rounds   int
	existing int
	verbose  bool
	parts    string
	noise    noise
}

func newFailover() *failover {
	f := &failover{}
	flag.IntVar(&f.rounds, "failovers", 20, "failover: `number` of stops, and of kills, of each operator's leader")
	flag.IntVar(&f.existing, "existing", 10, "failover: `number` of objects that each operator has at the start")
	flag.BoolVar(&f.verbose, "replicalogs", false, "failover: show the replicas' logs")
	flag.StringVar(&f.parts, "failover", "all", "failover: the `part` to run: all, gaps, costs, unsynced or takeover")
	return f
}

// arena is a control plane and a proxy in front of it.
type arena struct {
	direct kubernetes.Interface
	cfg    *rest.Config
	proxy  *fault.Proxy
	new    func(ctx context.Context) (namespace string, err error)
}

func (f *failover) run(w *report, _ int) {
	if err := f.runIn(context.Background(), w); err != nil {
		w.Flush()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newArena starts a control plane and a proxy.
func newArena(ctx context.Context) (a *arena, stop func() error, err error) {
	cluster, err := envtest.Start(ctx, envtest.Options{})
	if err != nil {
		return nil, nil, err
	}
	stop = cluster.Stop
	direct, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	proxy, err := fault.Start(ctx, cluster.Config(), fault.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	a = &arena{direct, cluster.Config(), proxy, func(ctx context.Context) (string, error) { return cluster.Namespace(ctx, "bench-") }}
	return a, func() error { //nolint:contextcheck // stop even if ctx is done
		proxy.Stop()
		return cluster.Stop()
	}, nil
}

func (f *failover) runIn(ctx context.Context, w *report) (err error) {
	a, stop, err := newArena(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, part := range []struct {
		name string
		run  func(context.Context, *report, *arena) error
	}{{"gaps", f.gaps}, {"costs", f.costs}, {"unsynced", f.unsynced}, {"takeover", f.takeovers}} {
		if f.parts != "all" && f.parts != part.name {
			continue
		}
		if err := part.run(ctx, w, a); err != nil {
			return err
		}
		fmt.Fprintln(w)
		w.Flush()
	}
	return nil
}

// end is how a leader ends.
type end struct {
	name   string
	signal syscall.Signal
	since  string
	most   time.Duration // bound for Setpoint
}

var ends = []end{
	{"SIGTERM", syscall.SIGTERM, "the signal", 300 * time.Millisecond},
	{"SIGKILL", syscall.SIGKILL, "the last renewal", leaseSeconds*time.Second + 300*time.Millisecond},
}

// operators are the contestants with controllers.
var operators = []string{"setpoint", "controller-runtime"}

// gaps makes both operators lose their leaders. Each has a namespace for each kind of end, and all
// run concurrently: nearly all of the time is waiting.
func (f *failover) gaps(ctx context.Context, w *report, a *arena) error {
	listening, stopListening := context.WithCancel(ctx)
	var listener sync.WaitGroup
	listener.Go(func() { f.noise.listen(listening) })
	defer listener.Wait()
	defer stopListening()
	results := make([][][]time.Duration, len(ends))
	errs := make([]error, len(ends)*len(operators))
	var playing sync.WaitGroup
	for i, e := range ends {
		results[i] = make([][]time.Duration, len(operators))
		for j, name := range operators {
			playing.Go(func() { results[i][j], errs[i*len(operators)+j] = f.lose(ctx, a, name, e) })
		}
	}
	playing.Wait()
	fmt.Fprintf(w, "to the next leader's first Reconcile of a new object, %d rounds\tsince\tleast\tmedian\tmost\tat most\t\tratio of medians\tof most\t\n", f.rounds)
	for i, e := range ends {
		for j, name := range operators {
			gaps := slices.Sorted(slices.Values(results[i][j]))
			if len(gaps) == 0 {
				continue
			}
			w.keep(failoverChart, e.name+", since "+e.since, name, seconds(gaps))
			most, ok, ratio := "", "", "\t"
			if j == 0 {
				most, ok = e.most.String(), verdict(gaps[len(gaps)-1] <= e.most)
			} else if ours := slices.Sorted(slices.Values(results[i][0])); len(ours) > 0 {
				ratio = fmt.Sprintf("%.1f ×\t%.1f ×", ratioBy(gaps, ours, len(gaps)/2, len(ours)/2), ratioBy(gaps, ours, len(gaps)-1, len(ours)-1))
			}
			fmt.Fprintf(w, "%s, %s\t%s\t%.3f s\t%.3f s\t%.3f s\t%s\t%s\t%s\t\n", e.name, name, e.since,
				gaps[0].Seconds(), gaps[len(gaps)/2].Seconds(), gaps[len(gaps)-1].Seconds(), most, ok, ratio)
		}
	}
	return errors.Join(errs...)
}

func seconds(gaps []time.Duration) (s []float64) {
	for _, g := range gaps {
		s = append(s, g.Seconds())
	}
	return s
}

func ratioBy(a, b []time.Duration, i, j int) float64 { return a[i].Seconds() / b[j].Seconds() }

// lose makes one operator lose its leader repeatedly, and returns the gaps.
func (f *failover) lose(ctx context.Context, a *arena, name string, e end) (gaps []time.Duration, err error) {
	namespace, err := a.new(ctx)
	if err != nil {
		return nil, err
	}
	for i := range f.existing {
		if err := a.create(ctx, namespace, fmt.Sprintf("existing-%d", i)); err != nil {
			return nil, err
		}
	}
	var cfgs []*rest.Config
	for range 3 {
		cfg, err := a.proxy.Config()
		if err != nil {
			return nil, err
		}
		cfgs = append(cfgs, cfg)
	}
	replicas := newFleet(name, namespace, cfgs...)
	replicas.verbose = f.verbose
	defer replicas.stop()
	for round := range f.rounds {
		leader, err := replicas.settle(ctx)
		if err != nil {
			return gaps, err
		}
		time.Sleep(time.Second + rand.N(2*time.Second)) // a random moment between two renewals
		began := time.Now()
		if err := leader.cmd.Process.Signal(e.signal); err != nil {
			return gaps, err
		}
		task := fmt.Sprintf("task-%d", round)
		if err := a.create(ctx, namespace, task); err != nil {
			return gaps, err
		}
		renewed := began
		if e.signal == syscall.SIGKILL {
			lease, err := a.direct.CoordinationV1().Leases(namespace).Get(ctx, leaseName, metav1.GetOptions{})
			if err != nil {
				return gaps, err
			}
			renewed = lease.Spec.RenewTime.Time
		}
		at, err := replicas.next(ctx, leader, task)
		if err != nil {
			return gaps, err
		}
		gaps = append(gaps, at.Sub(renewed))
		fmt.Fprintf(os.Stderr, "round %d, %s, %s: %.3f s, %.3f s since %s; timers were up to %s late\n",
			round+1, name, e.name, at.Sub(began).Seconds(), at.Sub(renewed).Seconds(), e.since, f.noise.before(at).Round(time.Millisecond))
		<-leader.joined
	}
	return gaps, nil
}

func (a *arena) create(ctx context.Context, namespace, name string) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	_, err := a.direct.CoreV1().ConfigMaps(namespace).Create(ctx, m, metav1.CreateOptions{})
	return err
}
