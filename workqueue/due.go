// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import "math"

// never is the due time of what is not due; the latest due time is just before it.
const never = math.MaxInt64

// dueHeap orders small indexes by due time, those of one time by the order in which they were given it: a 4-ary heap.
type dueHeap struct {
	nodes []dueNode
	where []uint32 // by index: its place in nodes plus one; 0: not in there
	seq   uint32
}

type dueNode struct {
	due   int64
	seq   uint32 // only differences count, so that it may wrap around
	index uint32
}

func (a dueNode) before(b dueNode) bool {
	return a.due < b.due || a.due == b.due && int32(a.seq-b.seq) < 0
}

// next returns the earliest due time.
func (h *dueHeap) next() int64 {
	if len(h.nodes) == 0 {
		return never
	}
	return h.nodes[0].due
}

// has tells whether index has a due time.
func (h *dueHeap) has(index uint32) bool {
	return int(index) < len(h.where) && h.where[index] != 0
}

// set gives index a due time; never takes it out.
func (h *dueHeap) set(index uint32, due int64) {
	for int(index) >= len(h.where) {
		h.where = append(h.where, 0)
	}
	at := int(h.where[index]) - 1
	switch {
	case at < 0 && due == never:
	case at < 0:
		h.seq++
		h.nodes = append(h.nodes, dueNode{})
		h.up(len(h.nodes)-1, dueNode{due, h.seq, index})
	case due == never:
		h.remove(at)
	case h.nodes[at].due != due:
		h.seq++
		h.fix(at, dueNode{due, h.seq, index})
	}
}

func (h *dueHeap) remove(i int) {
	h.where[h.nodes[i].index] = 0
	last := len(h.nodes) - 1
	n := h.nodes[last]
	h.nodes = h.nodes[:last]
	if i < last {
		h.fix(i, n)
	}
}

func (h *dueHeap) fix(i int, n dueNode) {
	if i > 0 && n.before(h.nodes[(i-1)/4]) {
		h.up(i, n)
		return
	}
	h.down(i, n)
}

func (h *dueHeap) put(i int, n dueNode) {
	h.nodes[i] = n
	h.where[n.index] = uint32(i) + 1
}

func (h *dueHeap) up(i int, n dueNode) {
	for i > 0 {
		parent := (i - 1) / 4
		if !n.before(h.nodes[parent]) {
			break
		}
		h.put(i, h.nodes[parent])
		i = parent
	}
	h.put(i, n)
}

func (h *dueHeap) down(i int, n dueNode) {
	for {
		least := 4*i + 1
		if least >= len(h.nodes) {
			break
		}
		for c := least + 1; c < min(4*i+5, len(h.nodes)); c++ {
			if h.nodes[c].before(h.nodes[least]) {
				least = c
			}
		}
		if !h.nodes[least].before(n) {
			break
		}
		h.put(i, h.nodes[least])
		i = least
	}
	h.put(i, n)
}

// reset empties the heap and gives its memory back.
func (h *dueHeap) reset() { *h = dueHeap{seq: h.seq} }
