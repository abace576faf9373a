// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// table prints events as they happen, and the summary at the end.
type table struct {
	options

	mu    sync.Mutex // guards the fields below
	out   io.Writer
	begun bool
	all   []round
}

func newTable(out io.Writer, o options) *table { return &table{out: out, options: o} }

func (t *table) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// round prints a row.
func (t *table) round(r *round) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun {
		t.begun = true
		fmt.Fprintf(t.out, "\n%5s  %-8s  %-7s  %-7s  %10s  %13s  %s\n", "round", "trouble", "leader", "next", "gap", "since renewal", "who led")
	}
	t.all = append(t.all, *r)
	renewal := "released"
	if r.renewal > 0 {
		renewal = human(r.renewal)
	}
	fmt.Fprintf(t.out, "%5d  %-8s  %-7s  %-7s  %10s  %13s  %s\n", r.n, r.trouble.name, r.from, r.to, human(r.gap), renewal, r.after)
	if t.verbose && r.took != "" {
		fmt.Fprintf(t.out, "%39sthe Lease was %s\n", "", r.took)
	}
}

// human formats a duration with the digits that matter.
func human(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.3f s", d.Seconds())
}

// clock warns if the wall clock was set: all times are wall clock times.
func (t *table) clock(mono, wall time.Duration) {
	if d := (wall - mono).Abs(); d > 5*time.Millisecond {
		t.say("\nthe wall clock was set meanwhile, by %s: times above and below may be off by that much, and fail their checks because of it", d)
	}
}

// within is the tolerance: a Reconcile begins a little after its term.
const within = 300 * time.Millisecond

// gaps prints how long each trouble kept the operator from working.
func (t *table) gaps() {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "\nUntil the next leader did a new task\n\n")
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "trouble\trounds\tleast\tmedian\tmost\tpromised\t\twhat it was")
	for i := range troubles {
		x := &troubles[i]
		var gaps []time.Duration
		for _, r := range t.all {
			switch {
			case r.trouble != x:
			case x.graceful:
				gaps = append(gaps, r.gap)
			default:
				gaps = append(gaps, r.renewal)
			}
		}
		if len(gaps) == 0 {
			continue
		}
		promise, most := "one event and one write (L6)", within
		if !x.graceful {
			promise, most = fmt.Sprintf("%s since the last renewal", t.lease), t.lease+within
		}
		slices.Sort(gaps)
		ok := "kept"
		if gaps[len(gaps)-1] > most {
			ok = "SLOW: more than " + human(within) + " over"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", x.name, len(gaps), human(gaps[0]), human(gaps[len(gaps)/2]), human(gaps[len(gaps)-1]), promise, ok, x.what)
	}
	w.Flush()
}

// manyTerms is the number of terms above which they are summed by replica.
const manyTerms = 40

// writes prints each replica's writes.
func (t *table) writes(all []*verdict) {
	fmt.Fprintf(t.out, "\nWrites by replica and term\n\n")
	var terms []termCount
	for _, v := range all {
		terms = append(terms, v.terms...)
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	if len(terms) > manyTerms {
		t.byReplica(w, terms)
		return
	}
	fmt.Fprintln(w, "replica\tterm\tlasted\twith a version\twithout\ttasks\trefused for the version")
	for _, c := range terms {
		lasted := "until the end"
		if !c.until.IsZero() {
			lasted = human(c.until.Sub(c.answered))
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%d\t%d\n", c.holder, c.version, lasted, c.writes[protects], c.writes[patches], c.writes[serves], c.conflict)
	}
}

func (t *table) byReplica(w io.Writer, terms []termCount) {
	type sum struct {
		terms, conflict int
		writes          map[string]int
	}
	sums := map[string]*sum{}
	for _, c := range terms {
		name, _, _ := strings.Cut(c.holder, ".")
		s := sums[name]
		if s == nil {
			s = &sum{writes: map[string]int{}}
			sums[name] = s
		}
		s.terms, s.conflict = s.terms+1, s.conflict+c.conflict
		for sort, n := range c.writes {
			s.writes[sort] += n
		}
	}
	fmt.Fprintln(w, "replica\tterms\twith a version\twithout\ttasks\trefused for the version")
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", name, s.terms, s.writes[protects], s.writes[patches], s.writes[serves], s.conflict)
	}
}

// late prints the writes that arrived after the next acquisition, by cause.
func (t *table) late(all []*verdict) {
	type kind struct{ cause, sort string }
	type count struct {
		n, executed int
		most        time.Duration
	}
	counts := map[kind]count{}
	for _, v := range all {
		for _, a := range v.arrivals {
			k := kind{a.cause, a.sort}
			c := counts[k]
			c.n, c.most = c.n+1, max(c.most, a.after)
			if a.late {
				c.executed++
			}
			counts[k] = c
			if t.verbose {
				t.say("late: %s write of %s to %s, %s after the acquisition, status %d: %s", a.sort, a.by, a.name, human(a.after), a.status, a.cause)
			}
		}
	}
	if len(counts) == 0 {
		return
	}
	fmt.Fprintf(t.out, "\nWrites that left in time and came after another's acquisition\n\n")
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "cause\tsort\twrites\tmost after it\texecuted")
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b kind) int {
		return cmp.Or(strings.Compare(a.cause, b.cause), strings.Compare(a.sort, b.sort))
	}) {
		c := counts[k]
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\n", k.cause, k.sort, c.n, human(c.most), c.executed)
	}
}
