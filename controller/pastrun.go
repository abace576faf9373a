// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// mostWrote is how many writes of a Reconcile are remembered.
const mostWrote = 4

// pastRun is a Reconcile that has returned.
type pastRun struct {
	runFigures
	cause runCause
	more  *runMore // or nil
}

// runFigures is what every Reconcile has. It has no pointers: see storedRun.
type runFigures struct {
	at              int64 // its end, in Unix ns
	took            time.Duration
	after           time.Duration // RequeueAfter
	version         uint64        // of the reason's object, 0 if it is unknown
	reads, requests uint16        // of caches, and to API servers; or more
	outcome         uint8         // an index of outcomes
	named           bool          // the reason is about the object that the key names
	mutated         bool          // it has sent a write, perhaps one that was refused
}

// runCause is what few reasons differ in.
type runCause struct{ source, event string }

// runMore is what most Reconciles of healthy keys do not have.
type runMore struct {
	object  string // of the reason, unless the key names it
	missing string // the last object that a cache did not have
	wrote   []string
	unsure  uint8    // a bit for each write that may have been a no-op
	key     string   // if it wrote
	cause   runCause // if too many are known
}

func (m *runMore) bytes() (n int) {
	if m == nil {
		return 0
	}
	n = int(unsafe.Sizeof(*m)) + len(m.object) + len(m.missing) + len(m.key) + len(m.cause.source) + len(m.cause.event)
	for _, text := range m.wrote {
		n += 16 + len(text)
	}
	return n
}

var outcomes = [...]hook.Outcome{hook.Succeeded, hook.RequeuedAfter, hook.Failed, hook.FailedTerminally, hook.Panicked, hook.Stale, hook.Interrupted}

func indexOf(o hook.Outcome) uint8 {
	for i, other := range outcomes {
		if o == other {
			return uint8(i)
		}
	}
	return 0
}

// ended describes a Reconcile that has returned, without its cause.
func (r *running[K]) ended(end *ending, took time.Duration, reason *workqueue.Reason, named func(K) types.NamespacedName) pastRun {
	past := pastRun{runFigures: runFigures{at: time.Now().UnixNano(), took: took, after: end.result.RequeueAfter, outcome: indexOf(end.outcome)}}
	var more runMore
	past.reads = uint16(min(r.reads.n.Load(), math.MaxUint16)) //nolint:gosec // it is not negative
	if missing := r.reads.missing.Load(); missing != nil {
		more.missing = *missing
	}
	if all := r.ledger.Load(); all != nil && all != r.of.over {
		past.requests, past.mutated = uint16(min(all.Begun(), math.MaxUint16)), all.Wrote() //nolint:gosec // as above
	}
	if past.mutated {
		more.wrote, more.unsure = textsOfWrites(r.ledger.Load().Writes())
		more.key = fmt.Sprint(r.item.Key())
	}
	if reason.ResourceVersion != "" { // ParseUint allocates its error
		past.version, _ = strconv.ParseUint(reason.ResourceVersion, 10, 64)
	}
	past.named = named != nil && named(r.item.Key()).Namespace != "" && isNamed(reason.Object, named(r.item.Key()))
	if !past.named {
		more.object = strings.Clone(strings.TrimPrefix(reason.Object, "/"))
	}
	if more.bytes() > int(unsafe.Sizeof(more)) {
		past.more = new(more) // a copy, so that most Reconciles allocate nothing
	}
	return past
}

// remember notes a Reconcile that has returned, and whose key is not settled yet.
func (r *running[K]) remember(end *ending, took time.Duration) {
	r.of.controller.past.note(r, end, took)
	if len(r.traces) == 0 {
		return
	}
	traced := r.traced(end, took)
	for _, t := range r.traces {
		t.send(traced)
	}
}

func (r *pastRun) failed() bool {
	switch outcomes[r.outcome] {
	case hook.Failed, hook.FailedTerminally, hook.Panicked:
		return true
	default:
		return false
	}
}

func textsOfWrites(writes []ledger.Write) (all []string, unsure uint8) {
	for i := range writes {
		if i == mostWrote {
			return append(all, fmt.Sprintf("and %d more", len(writes)-i)), unsure
		}
		w := &writes[i]
		if !w.Made {
			unsure |= 1 << i
		}
		text := fmt.Sprintf("%s (%s at version %s)", &w.Request, w.Effect, w.ResourceVersion)
		all = append(all, strings.Replace(text, " at version )", ")", 1))
	}
	return all, unsure
}

// describe describes a Reconcile in one line.
func (r *pastRun) describe(key string) string {
	line := fmt.Sprintf("Reconcile until %s, for %s: %s, %s", time.Unix(0, r.at).Format(time.RFC3339), rounded(r.took), outcomes[r.outcome], r.effect())
	if because := r.because(key); because != "" {
		line += "; because of " + because + ", by " + r.cause.source
	}
	return line
}

// effect describes what it has read and written.
func (r *pastRun) effect() (text string) {
	if r.reads > 0 {
		text = "read caches " + plural(r.reads, "time")
	}
	m := r.more
	if m == nil {
		m = &runMore{}
	}
	if m.missing != "" {
		text += " and did not find " + m.missing
	}
	if r.requests > 0 {
		text += ", sent " + plural(r.requests, "request")
	}
	switch {
	case len(m.wrote) > 0:
		text += ", wrote " + strings.Join(m.wrote, ", ")
	case r.mutated:
		text += ", wrote nothing because its writes were refused"
	default:
		text += ", wrote nothing"
	}
	return strings.TrimPrefix(text, ", ")
}

func plural(n uint16, what string) string {
	switch n {
	case 1:
		return "1 " + what
	case math.MaxUint16:
		return fmt.Sprintf("%d or more %ss", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// because describes the newest reason, or is empty.
func (r *pastRun) because(key string) string {
	text := r.cause.event
	if object := r.object(key); object != "" {
		text += " of " + object
	}
	if r.version != 0 {
		text += fmt.Sprintf(" at version %d", r.version)
	}
	return text
}

// object returns the name of the reason's object, or "".
func (r *pastRun) object(key string) string {
	switch {
	case r.named:
		return key
	case r.more != nil:
		return r.more.object
	}
	return ""
}

// wrote reports whether the answer to a write had a version of an object, and whether the write
// has surely made it.
func (r *pastRun) wrote(object, version string) (wrote, surely bool) {
	if r.more == nil {
		return false, false
	}
	i := slices.IndexFunc(r.more.wrote, func(text string) bool {
		return strings.HasSuffix(text, " at version "+version+")") && strings.Contains(text, " "+object+" (")
	})
	return i >= 0, i >= 0 && r.more.unsure&(1<<i) == 0
}
