// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest"
)

const (
	variable = "SETPOINT_SWEEP"
	lanes    = 8 // control planes beside each other
)

// onControlPlane reports whether the user asked for real control planes.
func onControlPlane() bool { return os.Getenv(variable) == "controlplane" }

// runOnControlPlanes is Run on several real control planes, each for one run at a time.
func runOnControlPlanes(t *testing.T, s *Scenario) {
	t.Helper()
	all := startLanes(t, s)
	sw := &sweep{s: s, perform: all[0].perform}
	sw.learn(t)
	todo := sw.plans(t)
	results := make([]*record, len(todo))
	next := make(chan int, len(todo))
	for i, plan := range todo {
		if plan.Fault.real() {
			next <- i
		}
	}
	close(next)
	var running sync.WaitGroup
	for _, l := range all {
		running.Go(func() {
			own := &sweep{s: s, perform: l.perform, want: sw.want}
			for i := range next {
				if results[i] = own.repeat(t, todo[i]); kept() && len(sw.problems(todo[i], results[i])) > 0 {
					l.keep(t, todo[i])
				}
			}
		})
	}
	running.Wait()
	for i, plan := range todo {
		t.Run(plan.testName(), func(t *testing.T) {
			t.Helper()
			if results[i] == nil {
				t.Skip("only on the simulated API server")
			}
			sw.report(t, plan, results[i])
		})
	}
}

// lane is a real control plane, for one run at a time.
type lane struct {
	cluster *envtest.Cluster
	basis   basis
	before  map[schema.GroupVersionResource][]unstructured.Unstructured // the last run
}

func startLanes(t *testing.T, s *Scenario) []*lane {
	t.Helper()
	all := make([]*lane, lanes)
	errs := make([]error, lanes)
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() { all[i], errs[i] = newLane(t.Context(), s) })
	}
	starting.Wait()
	for _, l := range all {
		if l != nil {
			t.Cleanup(l.stop(t))
		}
	}
	for _, err := range errs {
		if err != nil {
			t.Fatal(err) // the others have the same
		}
	}
	return all
}

func startLane(t *testing.T, s *Scenario) *lane {
	t.Helper()
	l, err := newLane(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.stop(t))
	return l
}

func newLane(ctx context.Context, s *Scenario) (*lane, error) {
	cluster, err := envtest.Start(ctx, envtest.Options{CRDs: s.CRDs, Controllers: true})
	if err != nil {
		return nil, err
	}
	l := &lane{cluster: cluster}
	if l.basis, err = newBasis(ctx, cluster.Config(), s); err != nil {
		return nil, errors.Join(err, cluster.Stop()) //nolint:contextcheck // it also ends after ctx
	}
	return l, nil
}

func (l *lane) stop(t *testing.T) func() {
	return func() {
		if err := l.cluster.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// perform performs the scenario, after it has brought back the state before the last one.
func (l *lane) perform(t *testing.T, s *Scenario, plan Plan, k known) *record {
	ctx, cancel := context.WithTimeout(t.Context(), l.pace().patience)
	defer cancel()
	if err := l.basis.restore(ctx, l.before); err != nil {
		r := newRecord()
		r.failures = append(r.failures, fmt.Sprintf("the control plane cannot be cleaned after the last run: %v", err))
		return &r
	}
	r := perform(t.Context(), l, s, plan, k)
	l.before = r.before
	return r
}

func kept() bool { return os.Getenv("SETPOINT_KEEP") == "1" }

// keep lets a control plane run until the end of the test, after a failed run.
func (l *lane) keep(t *testing.T, plan Plan) {
	dir, err := os.MkdirTemp("", "sweep-") // it outlives the test
	path := filepath.Join(dir, "kubeconfig")
	if err == nil {
		err = l.cluster.WriteKubeconfig(path)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sweep: %v\n", err)
		return
	}
	fmt.Fprintf(os.Stderr, "sweep: %s failed; its control plane runs until you press Ctrl-C: kubectl --kubeconfig %s\n", plan, path)
	<-t.Context().Done()
}

func (l *lane) config() *rest.Config { return l.cluster.Config() }

func (*lane) pace() pace {
	return pace{
		quiet: 300 * time.Millisecond, still: 20 * time.Second, patience: time.Minute, tail: time.Second,
		restart: 100 * time.Millisecond, joins: 300 * time.Millisecond, idle: time.Second,
		lag: 1500 * time.Millisecond, lasts: 3 * time.Second,
	}
}

func (l *lane) version(ctx context.Context) (string, error) { return l.basis.version(ctx) }

func (*lane) settle() {}

func (*lane) backup() (restore func()) { return nil }

// died deletes the Leases, so the next process need not wait until they expire.
func (l *lane) died(ctx context.Context, leases []string) { l.basis.deleteLeases(ctx, leases) }
