// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"cmp"
	"errors"
	"fmt"
	"go/parser"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// The least similarity of a piece to code that has drifted from it, in its function and in another
// one: the tokens that both have in the same order, as a share of all. A place must be clearly more
// similar than the next one.
const (
	alike     = 0.45
	veryAlike = 0.75
	clearly   = 0.1
)

// A drift is a change whose code is nowhere as it was written.
type drift struct {
	want, next []string // tokens
	kind       string
}

func newDrift(want []string, next string) drift {
	d := drift{want: want}
	d.next, _ = scan(next)
	if len(want) > enoughTokens {
		d.kind = kindOf(want)
	}
	return d
}

// similar returns the node in a scope that resembles a piece most, with the change merged into it.
// It is an error if another node resembles the piece as much, or if the change and the drift meet.
func (c Code) similar(sc scope, d drift) (p place, ok bool, err error) {
	type candidate struct {
		n, decl  node
		likeness float64
	}
	var all []candidate
	err = c.each(sc, func(n, decl node) {
		least := sc.alike
		switch {
		case strings.EqualFold(n.kind, d.kind):
		case strings.HasSuffix(n.kind, "()") && strings.HasSuffix(d.kind, "()") && least < veryAlike:
			least = veryAlike // a call of another function
		default:
			return
		}
		if l := matcher(d.want, n.tokens()).Ratio(); l >= least {
			all = append(all, candidate{n, decl, l})
		}
	})
	if err != nil || len(all) == 0 {
		return place{}, false, err
	}
	best := slices.MaxFunc(all, func(a, b candidate) int { return cmp.Compare(a.likeness, b.likeness) })
	for _, o := range all {
		if !o.n.meets(best.n) && o.likeness > best.likeness-clearly {
			return place{}, false, fmt.Errorf("has the code to replace 0 times, and both %v and %v resemble it", best.n, o.n)
		}
	}
	text, err := d.merge(best.n.tokens(), best.decl.tokens())
	if err != nil {
		return place{}, false, fmt.Errorf("has the code to replace 0 times, and %v resembles it, but %w", best.n, err)
	}
	return place{best.n, whole(d.want, strings.Join(text, " ")), true}, true, nil
}

// kindOf returns the kind of the node with these tokens, or "" if they are none.
func kindOf(tokens []string) string {
	for _, around := range [][2]string{{"_ = ", ""}, {"", ""}, {"", "}"}, {"switch {", "}"}, {"select {", "}"}, {"_ = T{", "}"}} {
		s, err := parseSource("", "package p\nfunc f() {\n"+around[0]+strings.Join(tokens, " ")+around[1]+"\n}")
		if err != nil {
			continue
		}
		for _, n := range s.decls[0].nodes() {
			if slices.Equal(n.tokens(), tokens) {
				return n.kind
			}
		}
	}
	return ""
}

// merge returns the tokens of found with the change. Expressions that took the place of others take
// their place in the new code, too.
func (d drift) merge(found, decl []string) ([]string, error) {
	var replaced [][2][]string
	for _, op := range matcher(d.want, found).GetOpCodes() {
		if op.Tag == 'e' {
			for i := range op.I2 - op.I1 { // the case of letters may differ
				if a, b := d.want[op.I1+i], found[op.J1+i]; a != b {
					replaced = append(replaced, [2][]string{{a}, {b}})
				}
			}
			continue
		}
		before, after := d.want[op.I1:op.I2], found[op.J1:op.J2]
		// A qualifier belongs to its name.
		if dot(before, len(before)-1) || dot(after, len(after)-1) {
			op.I2, op.J2 = op.I2+1, op.J2+1
		}
		if dot(before, 0) || dot(after, 0) {
			op.I1, op.J1 = op.I1-1, op.J1-1
		}
		before, after = d.want[op.I1:op.I2], found[op.J1:op.J2]
		if len(before) == 1 && len(after) == 1 && slices.Contains(decl, before[0]) {
			return nil, fmt.Errorf("its function still has %s", before[0])
		}
		if isExpr(before) && isExpr(after) {
			replaced = append(replaced, [2][]string{before, after})
		}
	}
	// The longest come first: a.b may have another counterpart than a.
	slices.SortStableFunc(replaced, func(a, b [2][]string) int { return len(b[0]) - len(a[0]) })
	merged, ok := threeWays(replace(d.want, replaced), found, replace(d.next, replaced))
	if !ok {
		return nil, errors.New("it differs where the change is")
	}
	return merged, nil
}

func dot(tokens []string, i int) bool { return 0 <= i && i < len(tokens) && tokens[i] == "." }

func isExpr(tokens []string) bool {
	_, err := parser.ParseExpr(strings.Join(tokens, " "))
	return err == nil
}

func replace(tokens []string, replaced [][2][]string) (all []string) {
next:
	for i := 0; i < len(tokens); {
		for _, r := range replaced {
			if end := i + len(r[0]); end <= len(tokens) && slices.Equal(tokens[i:end], r[0]) {
				all = append(all, r[1]...)
				i = end
				continue next
			}
		}
		all = append(all, tokens[i])
		i++
	}
	return all
}

// threeWays returns base with the changes of both others, or false if the changes touch.
func threeWays(base, a, b []string) (merged []string, ok bool) {
	type change struct {
		difflib.OpCode
		text []string
	}
	var changes []change
	for _, side := range [][]string{a, b} {
		for _, op := range difflib.NewMatcher(base, side).GetOpCodes() {
			if op.Tag != 'e' {
				changes = append(changes, change{op, side[op.J1:op.J2]})
			}
		}
	}
	slices.SortFunc(changes, func(x, y change) int { return cmp.Compare(x.I1, y.I1) })
	at := -1
	for _, ch := range changes {
		if ch.I1 <= at {
			return nil, false
		}
		merged = append(append(merged, base[max(at, 0):ch.I1]...), ch.text...)
		at = ch.I2
	}
	return append(merged, base[max(at, 0):]...), true
}

// matcher compares without the case of letters: a name may become exported.
func matcher(a, b []string) *difflib.SequenceMatcher {
	lower := func(tokens []string) (all []string) {
		for _, t := range tokens {
			all = append(all, strings.ToLower(t))
		}
		return all
	}
	return difflib.NewMatcher(lower(a), lower(b))
}
