// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/setpoint-dev/setpoint/internal/run"
)

// SlotSet is a set of slots.
type SlotSet [256]bool

// phase is what a stream does with the objects of a slot.
type phase uint8

const (
	foreign phase = iota // it drops them
	joining              // it holds them until a list is there
	kept                 // it delivers them
)

// Progress records which slots the store has. A stream delivers a mark after the objects of new
// slots: the delete of an object that never existed. The store has the slots when an event handler
// of the informer sees the mark. Progress is safe for concurrent use.
type Progress struct {
	again chan struct{} // asks the stream for another mark

	mu      sync.Mutex // guards the fields below
	marks   [256]int64 // by slot: the mark after its objects, or 0
	last    int64      // the last mark
	arrived int64      // the last mark that a handler saw
	reached chan struct{}
	err     error // why new slots cannot be listed
}

// markPrefix is no part of any object's name.
const markPrefix = "/slots/"

// MarkOf returns the number of a mark, from its name.
func MarkOf(name string) (mark int64, ok bool) {
	text, ok := strings.CutPrefix(name, markPrefix)
	mark, err := strconv.ParseInt(text, 10, 64)
	return mark, ok && err == nil
}

// Arrived records that an event handler saw a mark.
func (p *Progress) Arrived(mark int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived = max(p.arrived, mark)
	close(p.reached)
	p.reached = make(chan struct{})
}

// Again asks for another mark, for an event handler that may have missed the last one.
func (p *Progress) Again() { run.Poke(p.again) }

// Stored returns the last mark that the store has reached.
func (p *Progress) Stored() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrived
}

// Has reports whether all slots of a set come before a mark.
func (p *Progress) Has(slots *SlotSet, mark int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for slot, in := range slots {
		if in && (p.marks[slot] == 0 || p.marks[slot] > mark) {
			return false
		}
	}
	return true
}

// Err returns why new slots cannot be listed, or nil.
func (p *Progress) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *Progress) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// next returns a new mark, which comes after the objects of all slots that phases has.
func (p *Progress) next(phases *[256]phase) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	for slot, now := range phases {
		switch {
		case now != kept:
			p.marks[slot] = 0
		case p.marks[slot] == 0:
			p.marks[slot] = p.last
		}
	}
	return p.last
}

// await returns false if the mark does not arrive before ctx or the stream ends.
func (p *Progress) await(ctx context.Context, mark int64, stopped <-chan struct{}) bool {
	for {
		p.mu.Lock()
		there, reached := p.arrived >= mark, p.reached
		p.mu.Unlock()
		if there {
			return true
		}
		select {
		case <-reached:
		case <-stopped:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
