// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package slab allocates many small values. Values without pointers cost the garbage collector
// nothing.
package slab

const chunkBits = 8

// ChunkLen is how many values are allocated at once.
const ChunkLen = 1 << chunkBits

// Slab allocates values in chunks that never move, and addresses them by index. 0 means none. It
// grows to the peak of values in use; Reset frees all of it. The zero value is ready for use, by
// one goroutine at a time.
type Slab[T any] struct {
	chunks []*[ChunkLen]T
	used   uint32 // lower indexes are in use or in free
	free   []uint32
}

// At returns the value with an index.
func (s *Slab[T]) At(i uint32) *T {
	return &s.chunks[i>>chunkBits][i&(ChunkLen-1)]
}

// Take returns a zero value and its index.
func (s *Slab[T]) Take() (uint32, *T) {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i, s.At(i)
	}
	s.used = max(s.used, 1)
	if int(s.used>>chunkBits) == len(s.chunks) {
		s.chunks = append(s.chunks, new([ChunkLen]T))
	}
	i := s.used
	s.used++
	return i, s.At(i)
}

// Put gives a value back.
func (s *Slab[T]) Put(i uint32) {
	*s.At(i) = *new(T)
	s.free = append(s.free, i)
}

// Has reports whether an index was ever taken.
func (s *Slab[T]) Has(i uint32) bool { return i > 0 && i < s.used }

// End is above all indexes that were ever taken, or 0.
func (s *Slab[T]) End() uint32 { return s.used }

// Len returns the number of values in use.
func (s *Slab[T]) Len() int { return max(int(s.used)-1, 0) - len(s.free) }

// Reset frees all values.
func (s *Slab[T]) Reset() { *s = Slab[T]{} }
