// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"iter"
	"strings"
	"unsafe"

	"github.com/setpoint-dev/setpoint/hook"
)

// keyRuns are the last Reconciles of a key. Without pointers, many keys cost the garbage collector
// nothing: the indexes are of a pastRuns' slabs, and a hash stands for the key. Two of 1,000,000
// keys have the same hash in 1 of 37,000,000 processes, and then the same history.
type keyRuns struct {
	hash           uint64
	prev, next     uint32 // of its class, see linkLocked
	oldest, newest uint32 // Reconciles
	n              uint8
	class          int8
	used           bool  // since it was linked
	text           int32 // bytes of a key that is kept
}

// storedRun is a Reconcile of a key, without pointers.
type storedRun struct {
	runFigures
	cause uint16 // of pastRuns.causes, or noCause
	more  bool   // it has an entry of pastRuns.more
	next  uint32 // later Reconcile of the key
}

// noCause stands for a cause in runMore.
const noCause = mostCauses

func (p *pastRuns[K]) takeLocked(hash uint64, key K) uint32 {
	i, k := p.keys.Take()
	k.hash, p.indexes[hash] = hash, i
	if p.kept != nil {
		p.kept[i], k.text = key, int32(textSize(key)) //nolint:gosec // of a key
	}
	return i
}

// addLocked forgets the oldest Reconciles: of a healthy key, more of them.
func (p *pastRuns[K]) addLocked(k *keyRuns, run *pastRun) {
	most := uint8(mostRuns)
	if o := outcomes[run.outcome]; o == hook.Succeeded || o == hook.RequeuedAfter {
		most = mostHealthy
	}
	for k.n >= most {
		p.dropOldestLocked(k)
	}
	i, r := p.runs.Take()
	r.runFigures, r.cause = run.runFigures, p.causeLocked(run)
	if run.more != nil {
		r.more, p.more[i] = true, run.more
	}
	if k.n == 0 {
		k.oldest = i
	} else {
		p.runs.At(k.newest).next = i
	}
	k.newest = i
	k.n++
}

func (p *pastRuns[K]) dropOldestLocked(k *keyRuns) {
	i := k.oldest
	r := p.runs.At(i)
	if r.more {
		delete(p.more, i)
	}
	k.oldest = r.next
	k.n--
	p.runs.Put(i)
}

// causeLocked returns the index of a cause. It clones the strings that it keeps: they may be parts
// of larger ones.
func (p *pastRuns[K]) causeLocked(run *pastRun) uint16 {
	i, ok := p.known[run.cause]
	if ok {
		return i
	}
	c := runCause{strings.Clone(run.cause.source), strings.Clone(run.cause.event)}
	if len(p.causes) == mostCauses {
		if run.more == nil {
			run.more = &runMore{}
		}
		run.more.cause = c
		return noCause
	}
	i = uint16(len(p.causes)) //nolint:gosec // at most mostCauses
	p.causes, p.known[c] = append(p.causes, c), i
	return i
}

// allLocked yields a key's Reconciles, oldest first.
func (p *pastRuns[K]) allLocked(k *keyRuns) iter.Seq2[uint32, *storedRun] {
	return func(yield func(uint32, *storedRun) bool) {
		for i, n := k.oldest, k.n; n > 0; n-- {
			r := p.runs.At(i)
			if !yield(i, r) {
				return
			}
			i = r.next
		}
	}
}

func (p *pastRuns[K]) pastLocked(i uint32, r *storedRun) pastRun {
	past := pastRun{runFigures: r.runFigures, more: p.more[i]}
	if r.cause == noCause {
		past.cause = past.more.cause
	} else {
		past.cause = p.causes[r.cause]
	}
	return past
}

// linkLocked puts a key first. A key that is used again stays where it is until it would be
// forgotten: a move would touch its neighbors, which costs more than all else with many keys.
func (p *pastRuns[K]) linkLocked(i uint32, class int) {
	k, root := p.keys.At(i), p.lists[class]
	first := p.keys.At(root).next
	k.class, k.used, k.prev, k.next = int8(class), false, root, first
	p.keys.At(root).next, p.keys.At(first).prev = i, i
	p.counts[class]++
}

func (p *pastRuns[K]) unlinkLocked(i uint32) {
	k := p.keys.At(i)
	p.keys.At(k.prev).next, p.keys.At(k.next).prev = k.next, k.prev
	p.counts[k.class]--
}

// mapOverhead is what an entry takes in a map of growing size, as measured with 1,000,000 keys.
const mapOverhead = 40

// bytesLocked estimates the size, with the parts of the maps.
func (p *pastRuns[K]) bytesLocked(k *keyRuns) int64 {
	n := int(unsafe.Sizeof(*k)) + mapOverhead + int(k.n)*int(unsafe.Sizeof(storedRun{}))
	if p.kept != nil {
		n += mapOverhead + int(unsafe.Sizeof(*new(K))) + int(k.text)
	}
	if len(p.more) == 0 {
		return int64(n)
	}
	for i, r := range p.allLocked(k) {
		if r.more {
			n += mapOverhead + p.more[i].bytes()
		}
	}
	return int64(n)
}
