// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

import "math"

// never is no due time. The latest due time is never-1.
const never = math.MaxInt64

type heapNode[N any] interface {
	before(other N) bool
	id() uint32
}

// heap is 4-ary, with access by id. Package container/heap would allocate for each node.
type heap[N heapNode[N]] struct {
	nodes []N
	where []uint32 // by id: index in nodes plus one, or 0
}

func (h *heap[N]) has(id uint32) bool { return int(id) < len(h.where) && h.where[id] != 0 }

func (h *heap[N]) set(n N) {
	for int(n.id()) >= len(h.where) {
		h.where = append(h.where, 0)
	}
	at := int(h.where[n.id()]) - 1
	if at < 0 {
		at = len(h.nodes)
		h.nodes = append(h.nodes, n)
	}
	h.fix(at, n)
}

func (h *heap[N]) drop(id uint32) {
	if !h.has(id) {
		return
	}
	at, last := int(h.where[id])-1, len(h.nodes)-1
	n := h.nodes[last]
	h.where[id] = 0
	h.nodes = h.nodes[:last]
	if at < last {
		h.fix(at, n)
	}
}

func (h *heap[N]) clear() {
	for _, n := range h.nodes {
		h.where[n.id()] = 0
	}
	h.nodes = h.nodes[:0]
}

func (h *heap[N]) put(i int, n N) {
	h.nodes[i] = n
	h.where[n.id()] = uint32(i) + 1
}

// fix stores n at its position, starting at i, which is free.
func (h *heap[N]) fix(i int, n N) {
	for ; i > 0 && n.before(h.nodes[(i-1)/4]); i = (i - 1) / 4 {
		h.put(i, h.nodes[(i-1)/4])
	}
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

// dueHeap keeps the order in which equal due times were set.
type dueHeap struct {
	heap[dueNode]
	seq uint32
}

type dueNode struct {
	due   int64
	seq   uint32 // compared by difference, so it may wrap around
	index uint32
}

func (a dueNode) before(b dueNode) bool {
	return a.due < b.due || a.due == b.due && int32(a.seq-b.seq) < 0
}

func (a dueNode) id() uint32 { return a.index }

func (h *dueHeap) next() int64 {
	if len(h.nodes) == 0 {
		return never
	}
	return h.nodes[0].due
}

func (h *dueHeap) set(index uint32, due int64) {
	switch {
	case due == never:
		h.drop(index)
	case !h.has(index) || h.nodes[h.where[index]-1].due != due:
		h.seq++
		h.heap.set(dueNode{due, h.seq, index})
	}
}
