// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultHistory is the limit of a History in bytes, unless NewHistory gets another one. The memory
// in use can be 1.4 times the limit after many keys with one Reconcile were replaced by few with
// many: less than 64 MiB.
const DefaultHistory = 44 << 20

// History limits the memory for past Reconciles, which package why shows. Controllers with the same
// History share its limit. At the limit, healthy keys are forgotten first, then all but the last
// Reconcile of failing keys, then whole keys; each time roughly those that were not reconciled
// for the longest time. All methods are safe for concurrent use.
type History struct {
	limit int64
	used  atomic.Int64

	mu  sync.Mutex // guards what follows; held while keys are forgotten
	all []forgetful
}

// NewHistory returns a History with a limit in bytes, as far as its size can be estimated. With a
// limit of 0 or less it remembers nothing.
func NewHistory(bytes int64) *History { return &History{limit: bytes} }

// Bytes returns the estimated size.
func (h *History) Bytes() int64 { return h.used.Load() }

// forgetful is a controller's part of a History.
type forgetful interface {
	// count returns the number of keys in a class.
	count(class int) int
	// forget forgets up to n keys of a class, or parts of them.
	forget(class, n int)
	// writer returns the Reconcile that has made a version of an object. If surely is false, its
	// write may have been a no-op.
	writer(object string, version uint64, surely bool) (w writer, ok bool)
}

// writer is a Reconcile that has written something.
type writer struct {
	controller, key string
	surely          bool
	run             pastRun
}

func (w *writer) String() string {
	text := "perhaps caused by"
	if w.surely {
		text = "caused by"
	}
	text += fmt.Sprintf(" a write of the Reconcile of %s %s until %s", w.controller, w.key, time.Unix(0, w.run.at).Format(time.RFC3339))
	if because := w.run.because(w.key); because != "" {
		text += ", because of " + because
	}
	return text
}

// writer asks the controllers one after another.
func (h *History) writer(object string, version uint64) (w writer, ok bool) {
	h.mu.Lock()
	all := slices.Clone(h.all)
	h.mu.Unlock()
	for _, surely := range []bool{true, false} {
		for _, part := range all {
			if w, ok = part.writer(object, version, surely); ok {
				return w, true
			}
		}
	}
	return w, false
}

// mostChained is how many writes are followed back.
const mostChained = 5

// chain returns which Reconciles have caused one, each by its write: the last one first. It finds
// writes by name and version, which in several clusters may coincide.
func (h *History) chain(key string, r pastRun) (all []writer) {
	for len(all) < mostChained && r.version != 0 && r.object(key) != "" {
		w, ok := h.writer(r.object(key), r.version)
		if !ok {
			break
		}
		all = append(all, w)
		key, r = w.key, w.run
	}
	return all
}

// Classes of keys, in the order in which they are forgotten.
const (
	healthyKeys   = iota
	failingKeys   // with several Reconciles
	shortenedKeys // failing, with one
	numClasses
)

func (h *History) join(part forgetful) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, part)
}

func (h *History) leave(part forgetful) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = slices.DeleteFunc(h.all, func(other forgetful) bool { return other == part })
}

// forgotAtOnce is how many keys are forgotten with one lock of a part.
const forgotAtOnce = 64

// shrink forgets keys until the limit is kept, the fullest controller's first.
func (h *History) shrink() {
	if h.used.Load() <= h.limit || !h.mu.TryLock() { // else another goroutine does it
		return
	}
	defer h.mu.Unlock()
	for class := 0; class < numClasses; {
		if h.used.Load() <= h.limit {
			return
		}
		var fullest forgetful
		most := 0
		for _, part := range h.all {
			if n := part.count(class); n > most {
				fullest, most = part, n
			}
		}
		if fullest == nil {
			class++
			continue
		}
		fullest.forget(class, forgotAtOnce)
	}
}
