// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// Run performs the scenario without faults, and then with one fault at a time, each in a parallel
// subtest. It must not be called in a synctest bubble. Unless GOGC is set, it raises the limit of
// the garbage collector for the time of the test: a sweep then takes some hundred megabytes.
func Run(t *testing.T, s Scenario) {
	t.Helper()
	validate(t, &s)
	if onControlPlane() {
		runOnControlPlanes(t, &s)
		return
	}
	if os.Getenv("GOGC") == "" { // with small heaps, it takes a fourth of the time
		old := debug.SetGCPercent(400)
		t.Cleanup(func() { debug.SetGCPercent(old) })
	}
	sw := &sweep{s: &s, perform: inBubble}
	sw.learn(t)
	for _, plan := range sw.plans(t) {
		t.Run(plan.testName(), func(t *testing.T) {
			t.Helper()
			t.Parallel()
			sw.report(t, plan, sw.repeat(t, plan))
		})
	}
}

// Replay performs the scenario without faults, and then with the fault of the plan. It is what a
// failed subtest of Run prints.
func Replay(t *testing.T, s Scenario, plan Plan) {
	t.Helper()
	validate(t, &s)
	if !slices.Contains(ofWrites, plan.Fault) && !slices.Contains(ofRuns, plan.Fault) {
		t.Fatalf("Plan.Fault %q is unknown; use a constant of package sweep, but not None", plan.Fault)
	}
	sw := &sweep{s: &s, perform: inBubble}
	if onControlPlane() {
		sw.perform = startLane(t, &s).perform
	}
	sw.learn(t)
	if _, ok := sw.want.views[plan.View]; plan.View != "" && !ok {
		t.Fatalf("%s: there is no such view; the operator's views were:\n\t%s", plan, strings.Join(slices.Sorted(maps.Keys(sw.want.views)), "\n\t"))
	}
	r := sw.repeat(t, plan)
	if !r.fired && len(r.failures) == 0 {
		var names []string
		for _, w := range r.writes {
			names = append(names, fmt.Sprintf("%s #%d", w.name, w.nth))
		}
		t.Fatalf("%s: there is no such write; the operator's writes were:\n\t%s", plan, strings.Join(names, "\n\t"))
	}
	sw.report(t, plan, r)
}

func validate(t *testing.T, s *Scenario) {
	t.Helper()
	if err := errors.Join(s.validate(), s.readCRDs()); err != nil {
		t.Fatal(err)
	}
}

// sweep is a scenario, and what it does without faults.
type sweep struct {
	s       *Scenario
	perform func(t *testing.T, s *Scenario, plan Plan, k known) *record
	want    *record
	masked  map[string]bool // key and path of what differs without faults
}

// known is what a run knows of the ones before it.
type known struct {
	again bool                          // it is the second run without faults
	kinds []schema.GroupVersionResource // that are written
}

// learn performs the scenario twice, at different times and versions. The second time without
// streamed lists.
func (sw *sweep) learn(t *testing.T) {
	t.Helper()
	var runs [2]*record
	for i := range runs {
		runs[i] = sw.perform(t, sw.s, Plan{}, known{again: i > 0})
		r := runs[i]
		if r.failing != nil {
			r.failures = append(r.failures, fmt.Sprintf("after the last step, the operator is not idle: %v", r.failing))
		}
		if len(r.failures) > 0 {
			keep(t, r)
			t.Fatalf("without faults: %s", strings.Join(r.failures, "\n"))
		}
	}
	sw.want, sw.masked = runs[0], map[string]bool{}
	for _, d := range differences(sw.s, runs[0], runs[1]) {
		if d.path == "" {
			t.Fatalf("two runs without faults end with different objects: %s; let the steps have one result, and keep no state in variables of packages", d)
		}
		sw.masked[d.place()] = true
	}
	maps.Copy(sw.want.outdated, runs[1].outdated)
	maps.Copy(sw.want.unseen, runs[1].unseen)
}

// plans returns what to try.
func (sw *sweep) plans(t *testing.T) []Plan {
	t.Helper()
	if !slices.ContainsFunc(sw.want.writes, func(w *write) bool { return w.effective }) {
		t.Fatal("without faults: the operator has written nothing; let it use Process.Config, and let a step give it something to do")
	}
	return plans(sw.want)
}

// repeat performs the scenario with a fault, until it happens: concurrent workers do not always do
// the same writes.
func (sw *sweep) repeat(t *testing.T, plan Plan) (r *record) {
	t.Helper()
	for range 3 {
		if r = sw.perform(t, sw.s, plan, known{kinds: slices.Collect(maps.Keys(sw.want.before))}); r.fired || len(r.failures) > 0 {
			break
		}
	}
	return r
}

// problems compares a run with the one without faults.
func (sw *sweep) problems(plan Plan, r *record) []string {
	all := r.failures
	if r.failing != nil {
		all = append(all, fmt.Sprintf("after the last step, the operator is not idle: %v", r.failing))
	}
	for _, d := range differences(sw.s, sw.want, r) {
		// Between two steps without a pause, an operator may leave out what it does for the state.
		between := plan.Fault.skips() && (!d.last || d.missing)
		if !sw.masked[d.place()] && !between {
			all = append(all, d.String())
		}
	}
	if plan.Fault != Restore { // it takes back what was done once
		all = append(all, more("created", sw.want.created, r.created)...)
		all = append(all, more("deleted", sw.want.deleted, r.deleted)...)
	}
	for name, text := range r.unseen {
		if sw.want.unseen[name] == "" { // else it is normal
			all = append(all, text)
		}
	}
	return all
}

// report fails the test if the run was not as expected.
func (sw *sweep) report(t *testing.T, plan Plan, r *record) {
	t.Helper()
	if !r.fired && len(r.failures) == 0 {
		t.Skipf("%s: the write did not come again in three runs", plan)
	}
	if problems := sw.problems(plan, r); len(problems) > 0 {
		for _, text := range sw.want.notIdle { // it may be the cause
			problems = append(problems, "also without faults, "+text)
		}
		keep(t, r)
		t.Errorf("%s:\n\t%s\nto repeat it:\n\tsweep.Replay(t, scenario, %s)", plan, strings.Join(problems, "\n\t"), plan.goString())
	}
}

// inBubble performs the scenario on a sim, in virtual time.
func inBubble(t *testing.T, s *Scenario, plan Plan, k known) (r *record) {
	t.Helper()
	hangs := time.AfterFunc(realTime, func() {
		panic(fmt.Sprintf("sweep: %s: a run has not ended in %s of real time; a goroutine below may wait for the network, a file or a lock: the operator may only use Process.Config, no sockets", plan, realTime))
	})
	defer hangs.Stop()
	ended := false
	defer func() {
		if !ended { // a deadlock panics
			fmt.Fprintf(os.Stderr, "sweep: it happened in sweep.Replay(t, scenario, %s); if goroutines are blocked, the operator or a step has left them\n", plan.goString())
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		server := sim.New(t, s.Scheme, slices.Concat(s.definitions, s.Objects)...)
		if k.again {
			<-time.After(67*time.Minute + 13*time.Second)
			if err := age(t.Context(), server.Config()); err != nil {
				t.Fatal(err)
			}
		}
		r = perform(t.Context(), simulated{server}, s, plan, k)
	})
	ended = true
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
	var changes, objects strings.Builder
	for _, c := range r.changes {
		fmt.Fprintln(&changes, c)
		if text, err := c.object.MarshalJSON(); err == nil { // it came as JSON
			fmt.Fprintf(&objects, "%s\n%s", c, text)
		}
	}
	dir := t.ArtifactDir()
	for name, text := range map[string]string{
		"changes.txt": changes.String(), "objects.txt": objects.String(), "log.txt": r.log.String(),
		"requests.txt": r.requests.String(), "events.txt": r.events.String(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
}
