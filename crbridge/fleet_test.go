// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crbridge_test

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/envtest"
)

var rounds = flag.Int("rounds", 200, "`number` of rounds of the mixed fleet")

// TestMixedFleet: three replicas share a Lease of a real API server, one with controller-runtime,
// one at level b and a native one. Each round has a trouble for the leader: it is killed, stopped,
// or suspended until another one leads, or all replicas are replaced by the next program. The API
// server's order of all writes shows who led.
func TestMixedFleet(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("it takes minutes; set SETPOINT_FULL=1")
	}
	f := startFleet(t)
	for n := range *rounds {
		if err := f.play(t.Context(), n+1, troubles); err != nil {
			t.Fatalf("round %d: %v\n%s", n+1, err, f.state())
		}
	}
	v := f.judge(t)
	t.Logf("%d rounds\n%s", *rounds, table(f.results, v))
	for _, b := range v.broken {
		t.Error(b)
	}
	for _, l := range v.late {
		if programOf(l.by) != programTheirs || l.trouble != suspend {
			t.Error(&l)
		}
	}
	for _, program := range programs {
		for _, trouble := range troubles {
			if *rounds >= 30 && len(gaps(f.results, program, trouble, "")) == 0 {
				t.Errorf("no leader of %s had the trouble %q", program, trouble)
			}
		}
	}
}

// TestMixedFleet_Unfenced: the judge finds the writes of suspended leaders without a fence.
func TestMixedFleet_Unfenced(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("it takes minutes; set SETPOINT_FULL=1")
	}
	f := startFleet(t)
	f.unfenced = true
	for n := range 12 {
		if err := f.play(t.Context(), n+1, []string{suspend}); err != nil {
			t.Fatalf("round %d: %v\n%s", n+1, err, f.state())
		}
	}
	v := f.judge(t)
	t.Logf("\n%s", table(f.results, v))
	late := map[string]bool{}
	for _, l := range v.late {
		late[programOf(l.by)] = true
	}
	for _, program := range programs {
		if !late[program] {
			t.Errorf("no late write of %s was found", program)
		}
	}
}

// startFleet starts an API server and a fleet without processes.
func startFleet(t *testing.T) *fleet {
	t.Helper()
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ended(t, cluster.Stop) })
	f := &fleet{config: cluster.Config(), news: make(chan struct{}), counts: map[combination]int{}}
	if f.namespace, err = cluster.Namespace(t.Context(), "fleet"); err != nil {
		t.Fatal(err)
	}
	if f.client, err = kubernetes.NewForConfig(f.config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		f.stop()
		cancel()
		f.recording.Wait()
	})
	if err := f.record(ctx); err != nil {
		t.Fatal(err)
	}
	f.members = make([]*process, len(programs))
	return f
}

// judge ends all replicas and judges the history.
func (f *fleet) judge(t *testing.T) *verdict {
	t.Helper()
	f.stop()
	if err := f.complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return judge(f.history, f.mishaps, fleetLease)
}

const fleetLease = time.Second
