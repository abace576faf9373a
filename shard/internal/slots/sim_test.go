// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// changesPerRun is the least number of changes of members in one run: joins, leaves, crashes,
// restarts and suspensions.
const changesPerRun = 100

// TestP1_P2_P4_Simulation checks P1, P2, P4, P5 and P6 in virtual time. newSimulation(n,
// "").run(100) repeats run n.
func TestP1_P2_P4_Simulation(t *testing.T) { simulate(t, 20) }

// TestSimulation_AMillionChanges runs with SETPOINT_FULL=1.
func TestSimulation_AMillionChanges(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("10,000 runs take minutes; set SETPOINT_FULL=1")
	}
	simulate(t, 10_000)
}

func simulate(t *testing.T, runs int64) {
	var next, changes, writes, handovers, moves, edits atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := next.Add(1); n <= runs && !t.Failed(); n = next.Add(1) {
				w := newSimulation(uint64(n), "")
				testkit.Equal(t, w.run(changesPerRun), nil, fmt.Sprintf("run %d", n))
				changes.Add(int64(w.changes))
				writes.Add(int64(w.judge.stats.writes))
				handovers.Add(int64(w.judge.stats.handovers))
				moves.Add(int64(w.judge.stats.moves))
				edits.Add(int64(w.judge.stats.edits))
			}
		})
	}
	workers.Wait()
	t.Logf("%d runs: %d changes of members, %d edits by hand, %d moves of a slot, %d first Reconciles after a graceful move, %d writes",
		runs, changes.Load(), edits.Load(), moves.Load(), handovers.Load(), writes.Load())
}

// TestSimulation_FindsWhatIsLeftOut leaves out one safety check of the members in each case.
func TestSimulation_FindsWhatIsLeftOut(t *testing.T) {
	for without, what := range map[string]string{
		"proof":    "a silent member is declared dead before its Lease is acquired",
		"stop":     "the fence stays open after Stop",
		"order":    "an older record replaces a newer one",
		"waiting":  "a new assignment waits for no earlier owner",
		"handover": "the next owner does not wait for the former owner's writes",
		"term":     "a restarted member takes the slots of its former session",
		"release":  "the next owner acts before the release",
		"manager":  "a record that was put back by hand is accepted",
		"trust":    "the fence does not ask the term",
		"compare":  "an assignment is stored without its precondition",
	} {
		t.Run(without, func(t *testing.T) {
			for n := range uint64(10_000) {
				if err := newSimulation(n+1, without).run(changesPerRun); err != nil {
					t.Logf("%s: found in run %d: %v", what, n+1, err)
					return
				}
			}
			t.Errorf("%s: not found in 10,000 runs", what)
		})
	}
}
