// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package workqueue

// table maps a key's hash to the index of its entry, with open addressing and linear probing. A
// slot holds the hash in its upper half and the index in its lower half; 0 is free.
type table struct {
	slots []uint64
	n     int
}

const minSlots = 16

func (t *table) probe(hash uint32) (slot, mask uint32) {
	mask = uint32(len(t.slots) - 1)
	return hash & mask, mask
}

// insert keeps at least a quarter of the slots free.
func (t *table) insert(hash, index uint32) {
	if 4*(t.n+1) > 3*len(t.slots) {
		t.grow()
	}
	t.n++
	t.place(uint64(hash)<<32 | uint64(index))
}

func (t *table) place(v uint64) {
	i, mask := t.probe(uint32(v >> 32))
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = v
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]uint64, max(minSlots, 2*len(old)))
	for _, v := range old {
		if v != 0 {
			t.place(v)
		}
	}
}

// remove moves later indexes up, so that no probe ends too early.
func (t *table) remove(hash, index uint32) {
	i, mask := t.probe(hash)
	for uint32(t.slots[i]) != index {
		i = (i + 1) & mask
	}
	t.n--
	for j := i; ; {
		j = (j + 1) & mask
		v := t.slots[j]
		if v == 0 {
			break
		}
		if home := uint32(v>>32) & mask; (j-home)&mask >= (j-i)&mask {
			t.slots[i] = v
			i = j
		}
	}
	t.slots[i] = 0
}
