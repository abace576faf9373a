// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import "strconv"

// Class is how urgent a key is. A higher class is not served first, it is served more often: each
// class has a weight, and ready keys of all classes leave in proportion to the weights (W6). While
// a key is queued it keeps the highest class that it was added with since it was last taken. A key
// that comes back by itself, with Retry, After, Park or Release, keeps the class that it was taken
// with.
type Class int8

// Three classes are named; any other value may be used too.
const (
	// Background is for the initial list and resyncs.
	Background Class = -1
	// Normal is for changes. It is the zero value.
	Normal Class = 0
	// Interactive is for changes that a person waits for.
	Interactive Class = 1
)

// String returns the name of a named class, else its number.
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

// MarshalText returns String.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// ClassWeight gives a class its weight: a class with weight 4 is served four times as often as one with
// weight 1 while both have ready keys. Retries of the class (the deliveries that Retry, After and
// AddRateLimited bring about) have a quarter of that weight, beside it.
type ClassWeight struct {
	Class Class
	// Weight is between 0.000001 and 1000000.
	Weight float64
}

// ThreeClasses are shares for the three named classes: interactive 16, normal 4, background 1.
func ThreeClasses() []ClassWeight {
	return []ClassWeight{{Interactive, 16}, {Normal, 4}, {Background, 1}}
}

// returnShare is the weight of a class's returns relative to its adds.
const returnShare = 0.25

// lanesOf returns the lanes of classes that are sorted. If Options.Classes is set, each class has two
// lanes: one for adds, and one for returns, which are the deliveries that a key asks for itself with
// Retry or After. The core calls a lane a class: it has a weight, and a key moves up to a higher one
// and never down. So a return that is added once more in its class becomes an add, and moves.
//
// Lanes are numbered from the lowest class: returns 2i, adds 2i+1. Without Options.Classes there is
// one lane for all.
func lanesOf(classes []ClassWeight, split uint8) []share {
	var lanes []share
	for _, s := range classes {
		if split != 0 {
			lanes = append(lanes, share{class: s.Class, weight: s.Weight * returnShare})
		}
		lanes = append(lanes, share{class: s.Class, weight: s.Weight})
	}
	return lanes
}

// addedLane returns the lane of adds in the i-th class.
func addedLane(i int, split uint8) uint8 { return uint8(i)<<split | split }
