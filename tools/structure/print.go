// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// largest is the number of types in the table.
const largest = 8

// printTable prints the numbers, next to an earlier commit's if there is one.
func printTable(out io.Writer, then, now *library) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, of func(*library) string) {
		if then != nil {
			fmt.Fprintf(w, "%s\t%s\t", name, of(then))
		} else {
			fmt.Fprintf(w, "%s\t", name)
		}
		fmt.Fprintf(w, "%s\t\n", of(now))
	}
	if then != nil {
		fmt.Fprint(w, "\tbefore\tnow\t\n")
	}
	row("lines", func(l *library) string { return fmt.Sprint(l.lines) })
	row("mutexes", func(l *library) string { return fmt.Sprint(l.mutexes) })
	row("exported methods", func(l *library) string { return fmt.Sprint(l.exported) })
	names := slices.Collect(maps.Keys(now.packages))
	if then != nil {
		names = append(names, slices.Collect(maps.Keys(then.packages))...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		row(name, func(l *library) string { return l.packages[name].String() })
	}
	for i := range largest {
		row(fmt.Sprintf("largest type %d", i+1), func(l *library) string { return l.large(i) })
	}
	_ = w.Flush()
}

// String returns the package's lines, files and back arrows.
func (p *pkg) String() string {
	if p == nil {
		return "-"
	}
	back, all := p.back(p.order()), len(p.uses)
	return fmt.Sprintf("%d lines, %d files, back %d of %d (%.0f %%)", p.lines, len(p.files), back, all, 100*float64(back)/float64(max(1, all)))
}

// large returns the type with the i-th most methods.
func (l *library) large(i int) string {
	names := slices.SortedFunc(maps.Keys(l.types), func(a, b string) int {
		return cmp.Or(l.types[b].methods-l.types[a].methods, strings.Compare(a, b))
	})
	t := l.types[names[i]]
	return fmt.Sprintf("%s: %d methods in %d files", names[i], t.methods, len(t.files))
}

// printArrows prints the files of a package, callers first, and under each its uses of earlier
// files.
func printArrows(out io.Writer, p *pkg) {
	files := p.order()
	for i, from := range files {
		fmt.Fprintln(out, from)
		for _, to := range files[:i] {
			if names := p.uses[[2]string{from, to}]; len(names) > 0 {
				slices.Sort(names)
				fmt.Fprintf(out, "    back to %s: %s\n", to, strings.Join(slices.Compact(names), ", "))
			}
		}
	}
}
