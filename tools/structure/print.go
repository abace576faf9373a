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

// column is one column of the table.
type column struct {
	title string
	lib   *library
}

// printTable prints the numbers of each column.
func printTable(out io.Writer, columns ...column) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, of func(column) string) {
		fmt.Fprintf(w, "%s\t", name)
		for _, c := range columns {
			fmt.Fprintf(w, "%s\t", of(c))
		}
		fmt.Fprintln(w)
	}
	sum := func(name string, of func(*pkg) int) {
		row(name, func(c column) string { return fmt.Sprint(c.lib.sum(of)) })
	}
	row("", func(c column) string { return c.title })
	sum("lines", func(p *pkg) int { return p.lines })
	sum("of them comments", func(p *pkg) int { return p.comments })
	sum("of them code", func(p *pkg) int { return p.lines - p.comments - p.blank })
	row("lines that examples/hello links", func(c column) string { return fmt.Sprint(c.lib.linked) })
	sum("mutexes", func(p *pkg) int { return p.mutexes })
	sum("fields that are functions", func(p *pkg) int { return p.funcs })
	sum("exported names", func(p *pkg) int { return p.names })
	sum("exported methods", func(p *pkg) int { return p.exported })
	var names []string
	for _, c := range columns {
		names = append(names, slices.Collect(maps.Keys(c.lib.packages))...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		row(name, func(c column) string { return c.lib.packages[name].String() })
	}
	for i := range largest {
		row(fmt.Sprintf("largest type %d", i+1), func(c column) string { return c.lib.large(i) })
	}
	_ = w.Flush()
}

// sum adds up a number of each package.
func (l *library) sum(of func(*pkg) int) int {
	n := 0
	for _, p := range l.packages {
		n += of(p)
	}
	return n
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
	types := map[string]*typ{}
	for _, p := range l.packages {
		maps.Copy(types, p.types)
	}
	names := slices.SortedFunc(maps.Keys(types), func(a, b string) int {
		return cmp.Or(types[b].methods-types[a].methods, strings.Compare(a, b))
	})
	if i >= len(names) {
		return "-"
	}
	t := types[names[i]]
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
