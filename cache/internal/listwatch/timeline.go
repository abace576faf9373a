// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// timeline is what the API server has shown since the last complete list: how far it was, and the
// newest change. A later answer that contradicts it proves that the server's data has gone back, or
// is other data. It is safe for concurrent use.
type timeline struct {
	mu     sync.Mutex // guards the fields below
	newest uint64     // version; 0: unknown, or not a number
	former uint64     // newest before a list that has a lower version, until that is checked
	last   change
	wrote  uint64 // version of the newest known write; the watch may be behind it
	reached,
	before reading // the version at two times, for writes that began after them
	checked time.Time // an answer to a request sent then has confirmed the timeline
	asked   time.Time // the last such request, whatever its answer
}

// change is the last known change of an object.
type change struct {
	name    types.NamespacedName // empty: unknown
	uid     types.UID
	version uint64
	deleted bool
}

type reading struct {
	version uint64
	at      time.Time
}

// readAgain is the least time between two readings.
const readAgain = time.Second

// restart is called when a list begins.
func (t *timeline) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.former = max(t.former, t.newest)
	t.newest, t.last, t.reached, t.before = 0, change{}, reading{}, reading{}
}

// listed records the version of a complete list.
func (t *timeline) listed(version string) {
	t.note(version, nil, false)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.newest == 0 || t.newest >= t.former {
		t.former = 0
	}
}

// regressed reports whether the last list has a lower version than was known before.
func (t *timeline) regressed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.former > t.newest
}

// forget is called when the API server has other data now.
func (t *timeline) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newest, t.former, t.wrote, t.last, t.reached, t.before = 0, 0, 0, change{}, reading{}, reading{}
}

// note records a version, and the object that has it unless o is nil. It reports whether the
// version is lower than an earlier one.
func (t *timeline) note(version string, o metav1.Object, deleted bool) (lower bool) {
	v := parse(version)
	if v == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if o != nil && v >= t.last.version {
		t.last = change{object.Key(o), o.GetUID(), v, deleted}
	}
	if v < t.newest {
		return true
	}
	t.newest = v
	if now := time.Now(); now.Sub(t.reached.at) >= readAgain {
		t.before, t.reached = t.reached, reading{v, now}
	}
	return false
}

// knowledge is what an answer is compared with.
type knowledge struct {
	newest uint64 // of what the API server has sent
	least  uint64 // the version that it has reached
	last   change
}

func (t *timeline) now() knowledge {
	t.mu.Lock()
	defer t.mu.Unlock()
	newest := max(t.newest, t.former)
	return knowledge{newest, max(newest, t.wrote), t.last}
}

// written records the version of a write. It reports whether the watch has not reached it.
func (t *timeline) written(version string) (ahead bool) {
	v := parse(version)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrote = max(t.wrote, v)
	return v > t.newest
}

// contradicts reports whether a write's answer has a lower version than was known before the write
// was sent, and no later check has found the server where it was.
func (t *timeline) contradicts(version string, sent, answered time.Time) bool {
	v := parse(version)
	if v == 0 || sent.IsZero() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.reached
	if known.at.After(sent) {
		known = t.before
	}
	return v < known.version && !known.at.After(sent) && !t.checked.After(answered)
}

func (t *timeline) confirm(sent time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checked, t.former = sent, 0
}

// parse returns 0 for a version that cannot be compared.
func parse(version string) uint64 {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

func (t *timeline) ask() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = time.Now()
}

func (t *timeline) sinceAsked() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.asked)
}
