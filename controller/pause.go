// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// pauses are the keys that are paused, and who has paused them (C11).
type pauses[K comparable] struct {
	records *records[K]
	queue   *workqueue.Queue[K]
}

// set notes that somebody wants a key paused, or does not any more, and tells the queue what follows.
func (p *pauses[K]) set(key K, by pauser, paused bool) {
	var before, after bool
	p.records.edit(key, func(r *record[K]) {
		before = len(r.pausedBy) > 0
		r.pausedBy = slices.DeleteFunc(slices.Clone(r.pausedBy), func(other pauser) bool { return other == by })
		if paused {
			r.pausedBy = append(r.pausedBy, by)
		}
		after = len(r.pausedBy) > 0
	})
	if before != after {
		p.tell(key)
	}
}

// tell tells the queue whether a key is paused. The queue may call the host's code, so no lock is held meanwhile: whoever finds
// that it has changed again tells it again, so that the last one to tell it tells it how things are.
func (p *pauses[K]) tell(key K) {
	for {
		paused := p.has(key)
		if paused {
			p.queue.Pause(key)
		} else {
			p.queue.Resume(key)
		}
		if p.has(key) == paused {
			return
		}
	}
}

func (p *pauses[K]) has(key K) bool { return len(p.records.look(key).pausedBy) > 0 }
