// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crbridge_test

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// gaps returns the sorted times of the hand-overs from a leader to a program, or to any if it is
// "".
func gaps(results []result, program, trouble, next string) (all []time.Duration) {
	for _, r := range results {
		if r.program == program && r.trouble == trouble && (next == "" || r.next == next) {
			all = append(all, r.gap)
		}
	}
	slices.Sort(all)
	return all
}

// table prints hand-overs, writes and late writes by program.
func table(results []result, v *verdict) string {
	var s strings.Builder
	w := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "Median from the trouble to the first Reconcile by the next leader\n\nleader\ttrouble\trounds\tto %s\n", strings.Join(programs, "\tto "))
	for _, program := range programs {
		for _, trouble := range troubles {
			fmt.Fprintf(w, "%s\t%s\t%d", program, trouble, len(gaps(results, program, trouble, "")))
			for _, next := range programs {
				if all := gaps(results, program, trouble, next); len(all) > 0 {
					fmt.Fprintf(w, "\t%.3f s of %d", all[len(all)/2].Seconds(), len(all))
				} else {
					fmt.Fprint(w, "\t-")
				}
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintf(w, "\nWrites\n\nprogram\tterms\t%s\t%s\t%s\n", versioned, patched, task)
	for _, program := range programs {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", program, v.terms[program], v.writes[program][versioned], v.writes[program][patched], v.writes[program][task])
	}
	fmt.Fprintf(w, "\nWrites when another replica led\n\nprogram\tits last trouble\t%s\t%s\t%s\treplicas\tlatest after SIGCONT\n", versioned, patched, task)
	for _, program := range programs {
		for _, trouble := range append(troubles, "") {
			sorts, replicas, latest := map[string]int{}, map[string]bool{}, time.Duration(0)
			for _, l := range v.late {
				if programOf(l.by) == program && l.trouble == trouble {
					sorts[l.sort()]++
					replicas[l.by] = true
					latest = max(latest, l.after)
				}
			}
			if trouble == "" {
				trouble = "none"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d", program, trouble, sorts[versioned], sorts[patched], sorts[task], len(replicas))
			if trouble == suspend && len(replicas) > 0 {
				fmt.Fprintf(w, "\t%.1f s", latest.Seconds())
			}
			fmt.Fprintln(w)
		}
	}
	_ = w.Flush() // a strings.Builder does not fail
	return s.String()
}
