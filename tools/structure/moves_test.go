// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestParseMoves(t *testing.T) {
	log := strings.Join([]string{
		"R087\tclient/term.go\tterm/term.go",
		"R100\tcache/written.go\tcache/writes.go",       // within a package
		"R100\tclient/list_test.go\tevents/all_test.go", // a test
		"R060\tterm/wire.go\tinternal/wire/wire.go",
	}, "\n")
	want := []move{{"client", "term"}, {"term", "internal/wire"}}
	if got := parseMoves(log); !slices.Equal(got, want) {
		t.Errorf("parseMoves is %v, want %v", got, want)
	}
}

func TestDescended_FollowsMovesInOrder(t *testing.T) {
	lib := func(names ...string) *library {
		l := &library{packages: map[string]*pkg{}}
		for _, n := range names {
			l.packages[n] = &pkg{name: n}
		}
		return l
	}
	then := lib("cache", "client", "peek")
	now := lib("cache", "client", "events", "owner", "term", "wire")
	since := []move{
		{"events", "owner"}, // events is new
		{"client", "term"},
		{"peek", "scan"},
		{"scan", "wire"}, // two steps
	}
	got := slices.Sorted(maps.Keys(now.descended(then, since).packages))
	if want := []string{"cache", "client", "term", "wire"}; !slices.Equal(got, want) {
		t.Errorf("descended from %v: %v, want %v", slices.Sorted(maps.Keys(then.packages)), got, want)
	}
}

func TestPrintTable_ShowsNewPackagesInTheLastColumnOnly(t *testing.T) {
	then := &library{packages: map[string]*pkg{
		"cache": {name: "cache", lines: 100, comments: 40, mutexes: 3, exported: 7, types: map[string]*typ{"cache.Cache": {methods: 9, files: map[string]bool{"a.go": true}}}},
	}}
	now := &library{packages: map[string]*pkg{
		"cache":  {name: "cache", lines: 80, comments: 30, mutexes: 2, exported: 6},
		"events": {name: "events", lines: 15, comments: 5, mutexes: 1, exported: 4},
	}}
	var out strings.Builder
	printTable(&out, column{"before", then}, column{"same", now.descended(then, nil)}, column{"all", now})
	for _, row := range []string{
		"before same all",
		"lines 100 80 95",
		"of them comments 40 30 35",
		"mutexes 3 2 3",
		"exported methods 7 6 10",
		"events - - 15 lines, 0 files, back 0 of 0 (0 %)",
		"largest type 1 cache.Cache: 9 methods in 1 files - -",
	} {
		if !slices.ContainsFunc(strings.Split(out.String(), "\n"), func(line string) bool {
			return strings.Join(strings.Fields(line), " ") == row
		}) {
			t.Errorf("no row %q in\n%s", row, out.String())
		}
	}
}

func TestCountLines(t *testing.T) {
	p := &pkg{}
	p.countLines([]byte("// Package x is one.\npackage x\n\nvar A = 1 // one\n\t// B is two.\nvar B = 2\n"))
	if p.lines != 6 || p.comments != 2 {
		t.Errorf("%d lines, %d comments; want 6 and 2", p.lines, p.comments)
	}
}
