// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crbridge_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var rounds = flag.Int("rounds", 200, "`number` of rounds of the mixed fleets")

// The durations of the Lease. A RetryPeriod below 1 s is not safe beside client-go: it compares
// renewals by the second, overlooks a second one, and takes the Lease too early.
const (
	fleetLease = 3 * time.Second
	fleetRenew = 1500 * time.Millisecond
	fleetRetry = time.Second
)

// TestMixedFleet: three replicas share a Lease of a real API server, one with controller-runtime,
// one at level b and a native one. Each round has a trouble for the leader: it is killed, stopped,
// or suspended until another one leads, or all replicas are replaced by the next program. The API
// server's order of all writes shows who led.
//
//   - No replica writes while another one leads, except one of controller-runtime that was
//     suspended. Its elector sees the new holder, but tries again until RenewDeadline, and nothing
//     refuses its writes until then. The table counts them, and the writes of a replica of
//     controller-runtime that the machine gave too little time to renew its Lease.
//   - Such a replica takes nothing from the others: no Lease, and no write with a version. Its
//     update with the version that it had before is refused. Its patch without a version, and the
//     update of an object that it has read since, are executed.
//   - No Lease is taken before it has expired, no task is done twice.
func TestMixedFleet(t *testing.T) {
	p := &plan{troubles: troubles, left: *rounds}
	results, v := p.run(t)
	t.Logf("%d rounds\n%s", *rounds, table(results, v))
	for _, l := range v.late {
		if programOf(l.by) != programTheirs || l.trouble != suspend && l.trouble != "" {
			t.Error(&l)
		}
	}
	for _, program := range programs {
		for _, trouble := range troubles {
			if *rounds >= 30 && len(gaps(results, program, trouble, "")) == 0 {
				t.Errorf("no leader of %s had the trouble %q", program, trouble)
			}
		}
	}
}

// TestMixedFleet_Unfenced: the judge finds the writes of suspended leaders without a fence.
func TestMixedFleet_Unfenced(t *testing.T) {
	p := &plan{troubles: []string{suspend}, left: 12, unfenced: true}
	results, v := p.run(t)
	t.Logf("\n%s", table(results, v))
	late := map[string]bool{}
	for _, l := range v.late {
		late[programOf(l.by)] = true
	}
	for _, program := range []string{programBridge, programNative} {
		testkit.Equal(t, late[program], true, fmt.Sprintf("no late write of %s was found", program))
	}
}

// fleets is the number of fleets that run at once, each with its own Lease.
const fleets = 2

// run plays all rounds and returns the verdict on all fleets.
func (p *plan) run(t *testing.T) (results []result, v *verdict) {
	t.Helper()
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("it takes minutes; set SETPOINT_FULL=1")
	}
	p.counts = map[combination]int{}
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	testkit.NoError(t, err)
	t.Cleanup(func() { ended(t, cluster.Stop) })
	all, errs := make([]*fleet, fleets), make([]error, fleets)
	for i := range all {
		all[i] = p.fleet(t, cluster)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var playing sync.WaitGroup
	for i, f := range all {
		playing.Go(func() {
			if errs[i] = f.playAll(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	playing.Wait()
	testkit.NoError(t, errors.Join(errs...))
	v = &verdict{terms: map[string]int{}, writes: map[string]map[string]int{}}
	for _, f := range all {
		results = append(results, f.results...)
		f.change(func() { v.add(judge(f.history, f.mishaps, fleetLease)) })
	}
	for _, b := range v.broken {
		t.Error(b)
	}
	return results, v
}

// fleet returns a fleet without processes.
func (p *plan) fleet(t *testing.T, cluster *envtest.Cluster) *fleet {
	t.Helper()
	f := &fleet{plan: p, config: cluster.Config(), news: make(chan struct{}), members: make([]*process, len(programs))}
	var err error
	f.namespace, err = cluster.Namespace(t.Context(), "fleet")
	testkit.NoError(t, err)
	f.client, err = kubernetes.NewForConfig(f.config)
	testkit.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		f.stop()
		cancel()
		f.recording.Wait()
	})
	testkit.NoError(t, f.record(ctx))
	return f
}

// playAll plays rounds until there are enough. Then all replicas have ended, and the history is
// complete.
func (f *fleet) playAll(ctx context.Context) error {
	for {
		n, ok := f.plan.round()
		if !ok {
			break
		}
		if err := f.play(ctx, n); err != nil {
			return fmt.Errorf("%d rounds before the last: %w\n%s", n, err, f.state())
		}
	}
	f.stop()
	return f.complete(ctx)
}
