// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// gap is something that is not shown yet.
type gap interface {
	String() string
	Notify(f func()) (cancel func())
	// Failing reports whether the gap cannot close before an informer recovers.
	Failing() bool
}

// textGap is a gap that can only be asked about again.
type textGap string

func (g textGap) String() string     { return string(g) }
func (textGap) Notify(func()) func() { return func() {} }
func (textGap) Failing() bool        { return false }

// inherited are writes that a controller finds at its start, and waits for. A past is replaced,
// never changed. It has givenUp once the wait is over.
type inherited struct {
	leader atomic.Pointer[past]   // of the previous term
	former atomic.Pointer[past]   // of a removed controller of this name, see Controller.Inherit
	waits  atomic.Pointer[string] // what Lead waits for
}

// consistency makes keys wait until the caches show what was written (C6, L9).
type consistency[K comparable] struct {
	name     string        // of the controller
	bound    time.Duration // Options.ReadYourWrites
	hooks    *hook.Controller
	logger   func(context.Context) *slog.Logger
	declared *cache.Declarations
	stale    func() error // why what is watched or read may be old
	queue    *workqueue.Queue[K]
	records  *records[K]

	resolver  resolver
	inherited inherited
}

// waitAtMost is how long a key waits for the caches.
func (k *consistency[K]) waitAtMost() time.Duration {
	if k.bound < 0 { // then only a key that returned Stale waits
		return defaultReadYourWrites
	}
	return k.bound
}

// behind returns the last write that an informer does not show yet, if there is one, and why some
// cannot be waited for. Those with a lost answer become unsure. It asks about the oldest first, and
// again about all until all are shown: an object that was created and deleted is absent before and
// after, and only its creation tells the one from the other.
func (k *consistency[K]) behind(p *past) (last gap, unknown error) {
	if p.answers != nil {
		p.awaited, p.answers = awaited(p.answers)
		p.awaited = append(p.awaited, p.revived...)
	}
	p.unsure = nil
	for i := range p.awaited {
		w := &p.awaited[i]
		missing, why := k.gapOf(w)
		switch {
		case missing != nil:
			last = missing
		case why != nil && w.Unknown != "" && !w.resolved:
			p.unsure = append(p.unsure, *w)
		case why != nil:
			unknown = errors.Join(unknown, fmt.Errorf("%s: %w", &w.Write, why))
		}
	}
	return last, unknown
}

// gapOf returns what an informer does not show of a write, or why that cannot be told.
func (k *consistency[K]) gapOf(w *unseen) (missing gap, unknown error) {
	if w.Effect == ledger.Pending {
		return textGap(w.String() + ": there is no answer yet"), nil
	}
	shows := w.instead
	if !w.resolved {
		shows = []cache.Written{written(&w.Write)}
	}
	for _, s := range shows {
		g, why := k.declared.Behind(s)
		if g != nil {
			missing = g
		}
		unknown = errors.Join(unknown, why)
	}
	return missing, unknown
}

// stillMissing names the writes that were given up and are not shown now, and forgets the others. A
// write with a lost answer counts as missing for as long as a key would wait for it.
func (k *consistency[K]) stillMissing(p *past) error {
	var all []error
	var missing []unseen
	for i := range p.givenUp {
		w := &p.givenUp[i]
		gap, why := k.gapOf(w)
		switch {
		case w.Effect == ledger.Pending: // its ledger was given up with it
			if time.Since(w.Started) >= k.waitAtMost() {
				continue
			}
			all = append(all, errors.New(gap.String()))
		case gap != nil:
			w.failing = gap.Failing()
			all = append(all, errors.New(gap.String()))
		case why != nil && w.Unknown != "" && time.Since(w.Started.Add(w.Took)) < k.waitAtMost():
			all = append(all, fmt.Errorf("%s: %w", &w.Write, why))
		default:
			continue
		}
		missing = append(missing, *w)
	}
	p.givenUp = missing
	return errors.Join(all...)
}

// unansweredOf names the writes that still have no answer.
func unansweredOf(writes []unseen) error {
	var all []error
	for i := range writes {
		if w := &writes[i]; w.Effect == ledger.Pending {
			all = append(all, errors.New(w.String()+": there is no answer yet"))
		}
	}
	return errors.Join(all...)
}

// awaited returns what was written, and the ledger if it has to be asked again.
func awaited(l *ledger.Ledger) (writes []unseen, again *ledger.Ledger) {
	for _, w := range l.Writes() {
		writes = append(writes, unseen{Write: w})
		if w.Effect == ledger.Pending {
			again = l
		}
	}
	return writes, again
}

// written translates a write of the ledger for the cache.
func written(w *ledger.Write) cache.Written {
	shown := cache.Written{
		Host: w.Host, Resource: schema.GroupResource{Group: w.Group, Resource: w.Resource}, Namespace: w.Namespace, Name: w.Name,
		UID: w.UID, ResourceVersion: w.ResourceVersion, Object: w.Object, Unknown: w.Unknown,
		Subresource: w.Subresource,
		Gone:        w.Effect == ledger.Gone,
		Marked:      w.Effect == ledger.Accepted && (w.Verb == "deletecollection" || w.Verb == "delete" && w.Subresource == "" || w.Subresource == "eviction"),
	}
	if w.Salt != "" {
		shown.Hashed = w.Salt
	}
	return shown
}

// staleGap returns what a key waits for whose Reconcile returned Stale: a declared informer that
// fails, a write that was given up, or a source. It is nil if all are current.
func (k *consistency[K]) staleGap(p *past) gap {
	if failing := k.declared.Failing(); failing != nil {
		return failing
	}
	for i := range p.givenUp {
		if missing, _ := k.gapOf(&p.givenUp[i]); missing != nil {
			return missing
		}
	}
	if err := k.stale(); err != nil {
		return textGap(err.Error())
	}
	return nil
}

// missed reports whether something may have happened without any event to what a key has written.
func (k *consistency[K]) missed(p *past) bool {
	return slices.ContainsFunc(p.awaited, func(w unseen) bool { return k.declared.Missed(written(&w.Write)) })
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

const (
	// resolveAfter is how long after a lost answer the API server is asked what became of the write:
	// it has stored by then what it was about to store.
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
