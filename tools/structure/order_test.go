// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

// arrows returns a package with arrows such as "a>b".
func arrows(all ...string) *pkg {
	p := &pkg{uses: map[[2]string][]string{}}
	for _, a := range all {
		from, to, _ := strings.Cut(a, ">")
		p.uses[[2]string{from, to}] = []string{"x"}
		p.files = append(p.files, from, to)
	}
	slices.Sort(p.files)
	p.files = slices.Compact(p.files)
	return p
}

func TestOrder_LeavesTheFewestArrowsBack(t *testing.T) {
	for name, c := range map[string]struct {
		arrows []string
		back   int
	}{
		"a chain":             {[]string{"c>b", "b>a"}, 0},
		"two that call":       {[]string{"a>b", "b>a"}, 1},
		"a ring":              {[]string{"a>b", "b>c", "c>a"}, 1},
		"a ring with a chord": {[]string{"a>b", "b>c", "c>a", "b>a"}, 1},
		"two rings":           {[]string{"a>b", "b>a", "a>c", "c>d", "d>c"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := arrows(c.arrows...)
			files := p.order()
			if back := p.back(files); back != c.back || len(files) != len(p.files) {
				t.Errorf("%v has %d arrows back, want %d", files, back, c.back)
			}
		})
	}
}

func TestOutside(t *testing.T) {
	for name, want := range map[string]bool{"cache": false, "envtest": true, "envtest/fault": true, "internal/wire": false, "internal/scenario/ha": true, "webhook": false, "webhook/webhooktest": true} {
		if outside(name) != want {
			t.Errorf("outside(%q) is %t", name, !want)
		}
	}
}
