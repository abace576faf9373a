// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Class is how urgent a key is. A higher class is served more often, not first: classes with ready
// keys share the deliveries by weight.
type Class int8

// The named classes. Any other value is a class, too.
const (
	// Background is for initial lists and resyncs.
	Background Class = -1
	// Normal is for changes. It is the zero value.
	Normal Class = 0
	// Interactive is for changes that a person waits for.
	Interactive Class = 1
)

// String returns the name of a named class, and "class N" for any other.
func (c Class) String() string {
	switch c {
	case Background:
		return "background"
	case Normal:
		return "normal"
	case Interactive:
		return "interactive"
	}
	return "class " + strconv.Itoa(int(c))
}

// MarshalText returns String. The error is nil.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText accepts what String returns. Other text is an error, and leaves the class
// unchanged.
func (c *Class) UnmarshalText(text []byte) error {
	for _, named := range []Class{Background, Normal, Interactive} {
		if string(text) == named.String() {
			*c = named
			return nil
		}
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(string(text), "class "), 10, 8)
	if err != nil {
		return fmt.Errorf("workqueue: no class is named %q; use background, normal, interactive, or class N with N from -128 to 127", text)
	}
	*c = Class(n)
	return nil
}

// ClassWeight is a class with its weight: weight 4 is served four times as often as weight 1, while
// both have ready keys. Retries get a quarter of the weight of their class on top.
type ClassWeight struct {
	Class Class
	// Weight is between 0.000001 and 1000000.
	Weight float64
}

// ThreeClasses returns weights for the named classes: interactive 16, normal 4, background 1.
func ThreeClasses() []ClassWeight {
	return []ClassWeight{{Interactive, 16}, {Normal, 4}, {Background, 1}}
}

// orderOf returns the classes from the lowest to the highest, and the split of their lanes (see
// lanesOf). No classes are one class.
func orderOf(classes []ClassWeight) (sorted []ClassWeight, split uint8) {
	if len(classes) == 0 {
		return []ClassWeight{{Normal, 1}}, 0
	}
	return slices.SortedFunc(slices.Values(classes), func(a, b ClassWeight) int { return int(a.Class) - int(b.Class) }), 1
}

const returnShare = 0.25

// lanesOf returns the lanes of sorted classes. If Options.Classes is set, class i has lane 2i for
// retries and lane 2i+1 for adds, else all keys share one lane. In the core, a class is a lane: a
// key only moves up, so a retry that is added again in its class moves to the lane for adds.
func lanesOf(classes []ClassWeight, split uint8) []share {
	var shares []share
	for _, s := range classes {
		if split != 0 {
			shares = append(shares, share{class: s.Class, weight: s.Weight * returnShare})
		}
		shares = append(shares, share{class: s.Class, weight: s.Weight})
	}
	return shares
}

type lanes struct {
	added   [256]uint8 // by class
	classes []ClassWeight
	split   uint8
}

func newLanes(classes []ClassWeight, split uint8) lanes {
	l := lanes{classes: classes, split: split}
	for i, s := range classes {
		for c := range l.added {
			if int8(c) >= int8(s.Class) {
				l.added[c] = uint8(i)<<split | split
			}
		}
	}
	return l
}

func (l *lanes) laneOf(c Class) uint8 { return l.added[uint8(c)] }

func (l *lanes) classIn(lane uint8) Class { return l.classes[lane>>l.split].Class }
