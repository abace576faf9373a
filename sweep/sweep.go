// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Run performs the scenario without faults, and then with one fault at a time, each in a parallel
// subtest. It must not be called in a synctest bubble.
func Run(t *testing.T, s Scenario) {
	t.Helper()
	want := learn(t, &s)
	for _, plan := range plans(want.record) {
		t.Run(strings.ReplaceAll(plan.String(), " ", "_"), func(t *testing.T) {
			t.Parallel()
			if _, fired := repeat(t, &s, plan, want); !fired {
				t.Skipf("%s: the write did not come again in three runs", plan)
			}
		})
	}
}

// Replay performs the scenario without faults, and then with the fault of the plan. It is what a
// failed subtest of Run prints.
func Replay(t *testing.T, s Scenario, plan Plan) {
	t.Helper()
	want := learn(t, &s)
	if !slices.Contains(ofWrites, plan.Fault) && !slices.Contains(ofRuns, plan.Fault) {
		t.Fatalf("Plan.Fault %q is unknown; use a constant of package sweep", plan.Fault)
	}
	if r, fired := repeat(t, &s, plan, want); !fired {
		var names []string
		for _, w := range r.writes {
			names = append(names, fmt.Sprintf("%s #%d", w.name, w.nth))
		}
		t.Fatalf("%s: there is no such write; the operator's writes were:\n\t%s", plan, strings.Join(names, "\n\t"))
	}
}

// expected is what a run without faults does.
type expected struct {
	*record
	masked map[string]bool // key and path of what differs without faults
}

// learn performs the scenario twice, at different times.
func learn(t *testing.T, s *Scenario) expected {
	t.Helper()
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	var runs [2]*record
	for i := range runs {
		runs[i] = inBubble(t, s, Plan{}, time.Duration(i)*(67*time.Minute+13*time.Second))
		r := runs[i]
		if len(r.failures) > 0 {
			keep(t, r)
			t.Fatalf("without faults: %s", strings.Join(r.failures, "\n"))
		}
	}
	want := expected{runs[0], map[string]bool{}}
	for _, d := range differences(s, runs[0], runs[1]) {
		if d.path == "" {
			t.Fatalf("two runs without faults end with different objects: %s; let the steps have one result, and keep no state in variables of packages", d)
		}
		want.masked[d.place()] = true
	}
	return want
}

// repeat performs the scenario with a fault. It reports whether the fault has happened.
func repeat(t *testing.T, s *Scenario, plan Plan, want expected) (r *record, fired bool) {
	t.Helper()
	for range 3 { // concurrent workers do not always do the same writes
		if r = inBubble(t, s, plan, 0); r.fired {
			break
		}
	}
	if !r.fired {
		return r, false
	}
	problems := r.failures
	for _, d := range differences(s, want.record, r) {
		// An operator that was down leaves out what it does for a state that it did not see.
		unseen := (plan.Fault == CrashThenStep || plan.Fault == CrashThenAll) && (!d.last || d.missing)
		if !want.masked[d.place()] && !unseen {
			problems = append(problems, d.String())
		}
	}
	if plan.Fault != Restore { // it takes back what was done once
		problems = append(problems, more("created", want.created, r.created)...)
		problems = append(problems, more("deleted", want.deleted, r.deleted)...)
	}
	if len(problems) == 0 {
		return r, true
	}
	keep(t, r)
	t.Errorf("%s:\n\t%s\nto repeat it:\n\tsweep.Replay(t, scenario, %s)", plan, strings.Join(problems, "\n\t"), plan.goString())
	return r, true
}

// inBubble performs the scenario in virtual time.
func inBubble(t *testing.T, s *Scenario, plan Plan, shift time.Duration) (r *record) {
	t.Helper()
	hangs := time.AfterFunc(realTime, func() {
		panic(fmt.Sprintf("sweep: %s: a run has not ended in %s of real time; a goroutine below may wait for the network, a file or a lock: the operator may only use Process.Config, no sockets", plan, realTime))
	})
	defer hangs.Stop()
	synctest.Test(t, func(t *testing.T) { r = perform(t, s, plan, shift) })
	if r.late != "" {
		r.failures = append(r.failures, fmt.Sprintf("in the %s after the last step, something is still written: %s", tail, r.late))
	}
	return r
}

// realTime is the limit of a run that is blocked outside of its bubble. A run takes less than a
// second.
const realTime = 3 * time.Minute

func more(done string, want, got map[string]int) (all []string) {
	for key, n := range got {
		if n > want[key] && want[key] > 0 {
			all = append(all, fmt.Sprintf("%s is %s %d times, and %d without faults", key, done, n, want[key]))
		}
	}
	slices.Sort(all)
	return all
}

// keep writes the artefacts.
func keep(t *testing.T, r *record) {
	t.Helper()
	var changes strings.Builder
	for _, c := range r.changes {
		fmt.Fprintln(&changes, c)
	}
	dir := t.ArtifactDir()
	for name, text := range map[string]string{"changes.txt": changes.String(), "log.txt": r.log.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
}
