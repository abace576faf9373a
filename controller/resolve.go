// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
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

// resolve asks the API server what became of the writes whose answers were lost. It returns a gap if
// it cannot be asked yet.
func (k *consistency[K]) resolve(ctx context.Context, p *past) gap {
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	p.awaited = slices.Clone(p.awaited) // a sweep may be looking at it
	for i := range p.awaited {
		w := &p.awaited[i]
		if _, why := k.gapOf(w); why == nil || w.Unknown == "" || w.resolved || w.unresolvable {
			continue
		}
		if time.Since(w.Started.Add(w.Took)) < resolveAfter {
			return textGap(w.String() + ": its answer was lost; the API server is asked in a moment")
		}
		if !k.resolver.begin(time.Now(), k.declared.Recovered()) {
			return textGap(w.String() + ": its answer was lost, and the API server does not answer yet")
		}
		found, resolved, err := k.declared.Resolve(ctx, written(&w.Write))
		k.resolver.end(err)
		if err != nil {
			return textGap(w.String() + ": its answer was lost: " + err.Error())
		}
		w.instead, w.resolved, w.unresolvable = found, resolved, !resolved
	}
	return nil
}
