// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"
)

const (
	// resolveAfter is how long after a lost answer the API server is asked what became of the write:
	// what it was about to store is stored by then.
	resolveAfter = time.Second
	// resolveWithin is how long a worker waits for that answer. It is asked again later.
	resolveWithin = 2 * time.Second
	// resolvePause is how long no worker asks after a question without an answer, unless an informer
	// recovers. An API server that hangs must not take the workers from keys that need no answer.
	resolvePause = 2 * time.Second
)

// resolver lets workers ask the API server: any number while it answers, one at a time while not.
type resolver struct {
	mu     sync.Mutex // guards what follows
	asked  time.Time  // when the last question was put
	failed bool       // it had no answer
	next   time.Time  // then: when the next one may be put
}

// begin reports whether a worker may ask now. It must then call end. recovered is when an informer
// last began to follow the API server.
func (r *resolver) begin(now, recovered time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed && now.Before(r.next) && !recovered.After(r.asked) {
		return false
	}
	r.asked, r.next = now, now.Add(resolveWithin+time.Second)
	return true
}

func (r *resolver) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed, r.next = err != nil, time.Now().Add(resolvePause)
}
