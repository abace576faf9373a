// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Bucket 0 has durations below 1 µs. Then each power of two has four buckets. The last one begins
// at 64 minutes.
const (
	firstPower = 10 // 2^10 ns is about 1 µs
	numBuckets = 1 + 4*32
)

// Durations counts Reconciles by how long they took, in buckets a quarter of a power of two wide.
type Durations struct{ n [numBuckets]uint64 }

// Count returns the number of Reconciles.
func (d Durations) Count() (n uint64) {
	for _, of := range d.n {
		n += of
	}
	return n
}

// Since returns the Reconciles that an earlier Durations of the same controller did not count.
func (d Durations) Since(earlier Durations) Durations {
	for i := range d.n {
		d.n[i] -= min(earlier.n[i], d.n[i])
	}
	return d
}

// Quantile returns the duration that a share of the Reconciles did not exceed: 0.5 is the median.
// The error is at most a quarter. Without Reconciles it is 0.
func (d Durations) Quantile(share float64) time.Duration {
	left := share * float64(d.Count())
	for i, n := range d.n {
		if n := float64(n); n > 0 && left <= n {
			from, to := bucketStart(i), bucketStart(i+1)
			return from + time.Duration(float64(to-from)*max(0, left)/n)
		}
		left -= float64(n)
	}
	return 0
}

func bucketOf(took time.Duration) int {
	ns := uint64(max(took, 0))
	power := bits.Len64(ns) - 1
	if power < firstPower {
		return 0
	}
	quarter := int(ns >> (power - 2) & 3)
	return min(1+4*(power-firstPower)+quarter, numBuckets-1)
}

func bucketStart(i int) time.Duration {
	if i == 0 {
		return 0
	}
	return time.Duration(4+(i-1)%4) << (firstPower + (i-1)/4 - 2)
}

// durations counts Reconciles without a lock.
type durations struct{ n [numBuckets]atomic.Uint64 }

func (d *durations) add(took time.Duration) { d.n[bucketOf(took)].Add(1) }

func (d *durations) load() (all Durations) {
	for i := range d.n {
		all.n[i] = d.n[i].Load()
	}
	return all
}
