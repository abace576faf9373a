// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"fmt"
	"slices"
)

// listed bounds the printed lines of each list.
const listed = 10

// verdict prints which guarantees were kept and reports whether all were.
func (t *table) verdict(all []*verdict) bool {
	var requests, refusals, late, executed, versioned int
	var passed, left, broken []string
	for _, v := range all {
		requests, refusals = requests+v.requests, refusals+v.refusals
		passed, left, broken = slices.Concat(passed, v.passed), slices.Concat(left, v.left), slices.Concat(broken, v.broken)
		for _, a := range v.arrivals {
			late++
			if a.late {
				executed++
				if a.sort != patches {
					versioned++
				}
			}
		}
	}
	early := ""
	if versioned > 0 {
		early = ", before the next leader had written the object"
	}
	fmt.Fprintf(t.out, "\nOf %d requests in %d terms\n\n", requests, countTerms(all))
	fmt.Fprintf(t.out, "  %d passed the fence when the trust in their term was over\n", len(passed))
	t.list(passed)
	fmt.Fprintf(t.out, "  %d passed it in time and left the process later\n", len(left))
	t.list(left)
	fmt.Fprintf(t.out, "  %d writes came after another's acquisition; of these %d were executed, %d of them with a version%s\n", late, executed, versioned, early)
	fmt.Fprintf(t.out, "  %d writes were refused by the fence\n\n", refusals)
	if len(passed) == 0 && len(broken) == 0 {
		fmt.Fprintf(t.out, "All promises were kept. Writes by two replicas overlap in no object that is written with its version.\n")
		if executed > 0 {
			fmt.Fprintf(t.out, "A patch without a version that is in the network already cannot be called back: %d were executed late.\n", executed)
		}
		return true
	}
	fmt.Fprintf(t.out, "BROKEN promises: %d\n", len(broken)+len(passed))
	t.list(broken)
	return false
}

func countTerms(all []*verdict) (n int) {
	for _, v := range all {
		n += len(v.terms)
	}
	return n
}

func (t *table) list(lines []string) {
	for i, line := range lines {
		if i == listed && !t.verbose {
			fmt.Fprintf(t.out, "      and %d more; -v shows all\n", len(lines)-i)
			return
		}
		fmt.Fprintf(t.out, "      %s\n", line)
	}
}
