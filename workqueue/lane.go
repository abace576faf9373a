// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

// If Options.Classes is set, each class has two lanes: one for adds, and one for returns, which are
// the deliveries that a key asks for itself with Retry or After. A lane is what the core calls a
// class: it has a weight, and a key moves up to a higher one and never down. So a return that is
// added once more in its class becomes an add, and moves.
//
// Lanes are numbered from the lowest class: returns 2i, adds 2i+1. Without Options.Classes there is
// one lane for all.

// returnShare is the weight of a class's returns relative to its adds.
const returnShare = 0.25

// lanesOf returns the lanes of classes that are sorted.
func lanesOf(classes []Share, split uint8) []share {
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

// returning returns the lane for a return of a key that was taken from lane.
func (c *core[K]) returning(lane uint8) uint8 { return lane &^ c.split }
