// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// These environment variables configure the runs.
const (
	seedVariable   = "SETPOINT_MIX_SEED"   // of the first round; default: random
	roundsVariable = "SETPOINT_MIX_ROUNDS" // default: few, or all with SETPOINT_FULL=1
)

func setting(variable string, short, full int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	if os.Getenv("SETPOINT_FULL") != "" {
		return full
	}
	return short
}

// isRepeated reports whether a line may come more often than once for each trouble. Such lines are
// about a key's attempts (ten, and then one in ten seconds), about each object, or come each minute
// while workers wait.
func isRepeated(text string) bool {
	for _, s := range []string{"ERROR reconcile failed", "WARN reconcile", "handler failed", "wait for a source to sync"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// judgeLog returns what is wrong with the log of a round: a replica has each line at most twice for
// a trouble: the cause, and its consequence when the process starts again. An informer has lines of
// its own.
func judgeLog(log map[line]int, struck []trouble) (wrong []string) {
	most := 2 * len(struck)
	for _, t := range struck {
		if t == (restored{}) {
			most += 3 // on a real plane, an outage: refused, not ready, no answer, in conflict
		}
	}
	for of, n := range log {
		if n > most && !isRepeated(of.text) {
			wrong = append(wrong, fmt.Sprintf("replica %s has logged %d times: %s", of.replica, n, of.text))
		}
	}
	return wrong
}

// unnamed returns the troubles that had an effect and that no replica has logged. Only a process
// with caches from before a restore can notice it.
func (w *world) unnamed(struck []trouble, effects map[string]int) (wrong []string) {
	for _, t := range struck {
		named := slices.ContainsFunc(w.replicas, func(r *replica) bool { return w.log.has(r.id, t.line()) })
		if t == (restored{}) && !w.notices() {
			continue
		}
		if effects[t.name()] > 0 && t.line() != "" && !named {
			wrong = append(wrong, fmt.Sprintf("no line has %q", t.line()))
		}
	}
	return wrong
}

// round makes some troubles at once while persons work. It returns the effects of each, and what is
// wrong after at most limit.
func (w *world) round(seed uint64, first int, limit time.Duration) (effects map[string]int, wrong []string) {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secrets
	all := troubles()
	struck := []trouble{all[first%len(all)]}
	for range r.IntN(4) {
		struck = append(struck, all[r.IntN(len(all))])
	}
	_, virtual := w.plane.(*simPlane)
	w.alone = virtual && len(struck) == 1
	clear(w.outdated)
	effects = map[string]int{}
	var mu sync.Mutex // guards effects
	var striking, working sync.WaitGroup
	over := make(chan struct{})
	for n := range 2 {
		working.Go(func() { w.work(rand.New(rand.NewPCG(seed, uint64(100+n))), over) }) //nolint:gosec // no secrets
	}
	w.plane.pause(time.Minute)
	for n, t := range struck {
		own := rand.New(rand.NewPCG(seed, uint64(1+n))) //nolint:gosec // no secrets
		striking.Go(func() {
			w.plane.pause(between(own, time.Millisecond, 2*time.Minute))
			hits := t.strike(w, own)
			mu.Lock()
			defer mu.Unlock()
			effects[t.name()] += hits
		})
	}
	striking.Wait()
	close(over)
	working.Wait()
	for waited := time.Duration(0); ; waited += 10 * time.Second {
		if wrong = append(w.judge(), w.unnamed(struck, effects)...); len(wrong) == 0 || waited >= limit {
			break
		}
		w.plane.pause(10 * time.Second)
	}
	wrong = append(wrong, w.births.take()...)
	wrong = append(wrong, judgeLog(w.log.take(), struck)...)
	if len(wrong) > 0 {
		var names []string
		for _, t := range struck {
			names = append(names, t.name())
		}
		wrong = append(wrong, "the troubles were "+strings.Join(names, ", "))
	}
	return effects, wrong
}

// run makes rounds with seeds that follow each other, and fails if a kind of trouble had no effect.
func run(t *testing.T, rounds int, one func(t *testing.T, seed uint64) (effects map[string]int, wrong []string)) {
	seed := uint64(setting(seedVariable, 1, int(rand.Int32()))) //nolint:gosec // any will do
	effects := map[string]int{}
	for n := range rounds {
		had, wrong := one(t, seed+uint64(n))
		for name, hits := range had {
			effects[name] += hits
		}
		if len(wrong) > 0 {
			t.Errorf("round %d, seed %d:\n%s\nrepeat it in e2e with: GOWORK=off %s=%d %s=1 go test ./mix -run %s",
				n, seed+uint64(n), strings.Join(wrong, "\n"), seedVariable, seed+uint64(n), roundsVariable, t.Name())
		}
	}
	t.Logf("%d rounds from seed %d; effects: %v", rounds, seed, effects)
	for _, kind := range troubles() {
		if effects[kind.name()] == 0 && rounds >= len(troubles()) {
			t.Errorf("the trouble %q had no effect in %d rounds from seed %d", kind.name(), rounds, seed)
		}
	}
}

// kindOf returns the first trouble of a round, so that successive rounds have all kinds.
func kindOf(seed uint64) int { return int(seed % uint64(len(troubles()))) } //nolint:gosec // it is small

// TestMix_Sim runs rounds in virtual time.
func TestMix_Sim(t *testing.T) {
	run(t, setting(roundsVariable, len(troubles()), 200), func(t *testing.T, seed uint64) (effects map[string]int, wrong []string) {
		synctest.Test(t, func(t *testing.T) {
			p := newSimPlane()
			defer p.Close()
			w, err := newWorld(p)
			testkit.NoError(t, err)
			defer w.close()
			effects, wrong = w.round(seed, kindOf(seed), 5*time.Minute)
		})
		return effects, wrong
	})
}
