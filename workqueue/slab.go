// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

const (
	chunkBits = 8
	chunkLen  = 1 << chunkBits
)

// slab allocates values in chunks that never move, and addresses them by index. 0 means none. It
// grows to the peak of values in use; reset frees all of it.
type slab[T any] struct {
	chunks []*[chunkLen]T
	used   uint32 // lower indexes are in use or in free
	free   []uint32
}

func (s *slab[T]) at(i uint32) *T {
	return &s.chunks[i>>chunkBits][i&(chunkLen-1)]
}

func (s *slab[T]) take() (uint32, *T) {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i, s.at(i)
	}
	s.used = max(s.used, 1)
	if int(s.used>>chunkBits) == len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkLen]T))
	}
	i := s.used
	s.used++
	return i, s.at(i)
}

func (s *slab[T]) put(i uint32) {
	*s.at(i) = *new(T)
	s.free = append(s.free, i)
}

func (s *slab[T]) has(i uint32) bool { return i > 0 && i < s.used }
func (s *slab[T]) reset()            { *s = slab[T]{} }
