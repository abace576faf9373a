// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// entry is a state of the Lease or of an object, as the API server has stored it. The API server
// numbers all of them in one sequence.
type entry struct {
	version uint64
	object  string    // "" is the Lease
	by      string    // the identity of the writer; of the Lease, the holder
	n       int       // counts the writes of a versioned object
	renew   time.Time // of the Lease
	heard   time.Time // when the driver got it
}

// sort returns the sort of a write.
func (e *entry) sort() string {
	sort, _, _ := strings.Cut(e.object, "-")
	return sort
}

// mishap is the trouble of a replica, with the last version that was known before it.
type mishap struct {
	identity, trouble string
	version           uint64
	over              time.Time // when a suspended one was resumed
}

// lateWrite is a write by a replica after another one has acquired the Lease.
type lateWrite struct {
	entry

	leader  string
	trouble string        // the last one of the writer, or ""
	after   time.Duration // since the writer was resumed
}

func (l *lateWrite) String() string {
	return fmt.Sprintf("%s was written by %s in version %d, when %s led; its last trouble: %q", l.object, l.by, l.version, l.leader, l.trouble)
}

// verdict is the result of judging a history.
type verdict struct {
	terms  map[string]int            // by program
	writes map[string]map[string]int // by program and sort
	late   []lateWrite
	broken []string
}

// add adds the verdict on another history.
func (v *verdict) add(w *verdict) {
	for program, n := range w.terms {
		v.terms[program] += n
	}
	for program, sorts := range w.writes {
		if v.writes[program] == nil {
			v.writes[program] = map[string]int{}
		}
		for sort, n := range sorts {
			v.writes[program][sort] += n
		}
	}
	v.late, v.broken = append(v.late, w.late...), append(v.broken, w.broken...)
}

// judge evaluates a history. Two replicas lead at once if one of them writes after another one has
// acquired the Lease.
func judge(history []entry, mishaps []mishap, lease time.Duration) *verdict {
	history = slices.SortedFunc(slices.Values(history), func(a, b entry) int { return cmp.Compare(a.version, b.version) })
	j := &judgement{
		verdict: verdict{terms: map[string]int{}, writes: map[string]map[string]int{}},
		mishaps: mishaps, lease: lease, termOf: map[string]int{}, last: map[string]entry{},
	}
	for _, e := range history {
		switch {
		case e.object == "":
			j.leased(e)
		case e.by != "": // else the driver has made it
			j.written(e)
		}
	}
	return &j.verdict
}

// judgement is the state of judge.
type judgement struct {
	verdict

	mishaps []mishap
	lease   time.Duration
	leader  string
	before  entry            // the previous state of the Lease
	term    int              // counts the acquisitions
	termOf  map[string]int   // by identity: the last one
	last    map[string]entry // by object: the last write
}

func (j *judgement) breakf(format string, args ...any) {
	j.broken = append(j.broken, fmt.Sprintf(format, args...))
}

func (j *judgement) leased(e entry) {
	if e.by != "" && e.by != j.before.by {
		if j.before.by != "" && e.renew.Sub(j.before.renew) < j.lease {
			j.breakf("%s took the Lease of %s only %s after its last renewal", e.by, j.before.by, e.renew.Sub(j.before.renew))
		}
		j.term++
		j.leader, j.termOf[e.by] = e.by, j.term
		j.terms[programOf(e.by)]++
	}
	j.before = e
}

func (j *judgement) written(e entry) {
	program := programOf(e.by)
	if j.writes[program] == nil {
		j.writes[program] = map[string]int{}
	}
	j.writes[program][e.sort()]++
	switch {
	case e.by != j.leader:
		late := lateWrite{entry: e, leader: j.leader}
		for _, m := range j.mishaps {
			if m.identity == e.by && m.version < e.version {
				late.trouble, late.after = m.trouble, e.heard.Sub(m.over)
			}
		}
		j.late = append(j.late, late)
	case j.before.by == "":
		j.breakf("%s was written by %s in version %d, after its Lease was released", e.object, e.by, e.version)
	}
	last, again := j.last[e.object]
	switch {
	case !again:
	case e.sort() == task:
		j.breakf("%s was done by %s, and again by %s", e.object, last.by, e.by)
	case e.sort() == versioned && e.n != last.n+1:
		j.breakf("write %d of %s by %s is lost: %s has written %d", last.n, e.object, last.by, e.by, e.n)
	case e.sort() == versioned && j.termOf[e.by] < j.termOf[last.by]:
		j.breakf("%s was written by %s after its next leader %s", e.object, e.by, last.by)
	}
	j.last[e.object] = e
}

// seed is a history of two terms: version 10 is a's, from second 0, and version 100 is b's, from
// second 5.
func seed(more ...entry) []entry {
	return append(more,
		leasedAt(10, "native#1", 0), leasedAt(50, "native#1", 3), leasedAt(100, "level b#2", 5),
		entry{version: 20, object: "versioned-0", by: "native#1", n: 1},
		entry{version: 110, object: "versioned-0", by: "level b#2", n: 2},
		entry{version: 111, object: "task-1"}, entry{version: 112, object: "task-1", by: "level b#2"},
	)
}

func leasedAt(version uint64, holder string, second int64) entry {
	return entry{version: version, by: holder, renew: time.Unix(second, 0)}
}

// TestJudge: the judge of the mixed fleet can fail.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		more   []entry
		late   string // trouble and sort of late writes
		broken string
	}{
		"nothing":             {nil, "", ""},
		"before the takeover": {[]entry{{version: 99, object: "patched-0", by: "native#1"}}, "", ""},
		"after the takeover":  {[]entry{{version: 101, object: "patched-0", by: "native#1"}}, "suspend patched", ""},
		"after the takeover, by a replica without trouble": {[]entry{
			leasedAt(200, "controller-runtime#3", 9), {version: 201, object: "patched-0", by: "level b#2"},
		}, " patched", ""},
		"it leads again":    {[]entry{leasedAt(200, "native#1", 9), {version: 201, object: "patched-0", by: "native#1"}}, "", ""},
		"it has never led":  {[]entry{{version: 60, object: "task-0", by: "level b#3"}}, " task", ""},
		"after its release": {[]entry{leasedAt(120, "", 6), {version: 121, object: "patched-0", by: "level b#2"}}, "", "after its Lease was released"},
		"taken early":       {[]entry{leasedAt(200, "native#4", 6)}, "", "took the Lease of level b#2 only 1s"},
		"taken after a release": {[]entry{
			leasedAt(120, "", 6), leasedAt(121, "native#4", 6), {version: 122, object: "patched-0", by: "native#4"},
		}, "", ""},
		"back to an older leader": {[]entry{{version: 120, object: "versioned-0", by: "native#1", n: 3}}, "suspend versioned", "after its next leader"},
		"a lost write":            {[]entry{{version: 120, object: "versioned-0", by: "level b#2", n: 2}}, "", "write 2 of versioned-0 by level b#2 is lost"},
		"done twice":              {[]entry{{version: 120, object: "task-1", by: "level b#2"}}, "", "done by level b#2, and again"},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(seed(c.more...), []mishap{
				{identity: "native#1", trouble: "kill", version: 15}, {identity: "native#1", trouble: "suspend", version: 55}, {identity: "native#1", trouble: "stop", version: 500},
			}, 2*time.Second)
			var late []string
			for _, l := range v.late {
				late = append(late, l.trouble+" "+l.sort())
			}
			testkit.Equal(t, strings.Join(late, ", "), c.late, "late writes")
			if got := strings.Join(v.broken, "\n"); !strings.Contains(got, c.broken) || c.broken == "" && got != "" {
				t.Errorf("broken: %q, want %q", got, c.broken)
			}
		})
	}
	v := judge(seed(), nil, 2*time.Second)
	if v.terms[programNative] != 1 || v.terms[programBridge] != 1 || v.writes[programBridge][task] != 1 || v.writes[programNative][versioned] != 1 {
		t.Errorf("counted %v terms and %v writes", v.terms, v.writes)
	}
}
