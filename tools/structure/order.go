// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// order returns the files so that few arrows run back: callers first. It starts with the greedy
// heuristic for feedback arc sets (Eades, Lin and Smyth): sources go first, sinks last. Of the
// rest, the file with the most outgoing minus incoming arrows goes first. Then it moves single
// files as long as that helps.
func (p *pkg) order() []string {
	rest := slices.Sorted(slices.Values(p.files))
	var first, last []string
	for len(rest) > 0 {
		at, toFront := p.pick(rest)
		if toFront {
			first = append(first, rest[at])
		} else {
			last = append(last, rest[at])
		}
		rest = slices.Delete(rest, at, at+1)
	}
	slices.Reverse(last)
	files := append(first, last...)
	for p.improve(files) {
	}
	return files
}

// pick chooses the next file of rest, and its end of the order.
func (p *pkg) pick(rest []string) (at int, toFront bool) {
	best := -len(rest) - 1
	for i, f := range rest {
		out, in := 0, 0
		for _, g := range rest {
			out += p.arrow(f, g)
			in += p.arrow(g, f)
		}
		if out == 0 {
			return i, false
		}
		if in == 0 {
			return i, true
		}
		if out-in > best {
			best, at = out-in, i
		}
	}
	return at, true
}

// improve moves one file to a place with fewer back arrows, and reports whether it found one.
func (p *pkg) improve(files []string) bool {
	now := p.back(files)
	for i := range files {
		for j := range files {
			moved := slices.Clone(files)
			f := moved[i]
			moved = slices.Insert(slices.Delete(moved, i, i+1), j, f)
			if p.back(moved) < now {
				copy(files, moved)
				return true
			}
		}
	}
	return false
}

func (p *pkg) arrow(from, to string) int {
	if len(p.uses[[2]string{from, to}]) > 0 {
		return 1
	}
	return 0
}

// back counts the arrows against the order.
func (p *pkg) back(files []string) int {
	n := 0
	for i, to := range files {
		for _, from := range files[i+1:] {
			n += p.arrow(from, to)
		}
	}
	return n
}
