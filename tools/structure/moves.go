// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path"
	"strings"
)

// move is a rename of a file between two packages.
type move struct{ from, to string }

// moves returns the renames of Go files between packages since a commit, oldest first.
func moves(ctx context.Context, root, since string) ([]move, error) {
	log, err := git(ctx, root, "log", "--reverse", "--topo-order", "--find-renames", "--diff-filter=R", "--name-status", "--format=", since+"..HEAD", "--", "*.go")
	if err != nil {
		return nil, err
	}
	return parseMoves(log), nil
}

// parseMoves reads lines such as "R087\tclient/term.go\tterm/term.go".
func parseMoves(log string) []move {
	var all []move
	for line := range strings.Lines(log) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 || strings.HasSuffix(fields[1], "_test.go") {
			continue
		}
		if m := (move{path.Dir(fields[1]), path.Dir(fields[2])}); m.from != m.to {
			all = append(all, m)
		}
	}
	return all
}

// descended returns the packages of lib that existed then, or into which a file moved from one of
// those, directly or through other packages.
func (lib *library) descended(then *library, since []move) *library {
	old := map[string]bool{}
	for name := range then.packages {
		old[name] = true
	}
	for _, m := range since {
		if old[m.from] {
			old[m.to] = true
		}
	}
	some := &library{packages: map[string]*pkg{}}
	for name, p := range lib.packages {
		if old[name] {
			some.packages[name] = p
		}
	}
	return some
}
