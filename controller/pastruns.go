// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// How many Reconciles of a key are remembered, and how many writes of one.
const (
	mostRuns    = 8
	mostHealthy = 2
	mostWrote   = 4
)

// pastRun is a Reconcile that has returned. It has 64 bytes.
type pastRun struct {
	at      int64 // its end, in Unix ns
	took    time.Duration
	after   time.Duration // RequeueAfter
	outcome uint8         // an index of outcomes
	named   bool          // the reason is about the object that the key names
	cause   *runCause
	version uint64 // of the reason's object, 0 if it is unknown
	object  *string
	wrote   *[]string // nil: nothing
}

func (r *pastRun) failed() bool {
	switch outcomes[r.outcome] {
	case hook.Failed, hook.FailedTerminally, hook.Panicked:
		return true
	default:
		return false
	}
}

// runCause is what few reasons differ in.
type runCause struct{ source, event string }

// mostCauses limits the known causes.
const mostCauses = 256

// mostEvent is how much of a reason's event is kept.
const mostEvent = 64

var outcomes = [...]hook.Outcome{hook.Succeeded, hook.RequeuedAfter, hook.Failed, hook.FailedTerminally, hook.Panicked, hook.Stale, hook.Interrupted}

// keyRuns are the last Reconciles of a key, oldest first.
type keyRuns[K comparable] struct {
	key        K
	prev, next *keyRuns[K] // of its class, last used first
	runs       []pastRun
	class      int8
	text       int32 // bytes of the key's strings, if it is a name
}

// pastRuns remembers the last Reconciles of a controller's keys, within the limit of a History.
type pastRuns[K comparable] struct {
	history *History
	named   func(K) types.NamespacedName // or nil
	forgot  atomic.Bool                  // some key was forgotten

	mu     sync.Mutex // guards what follows
	keys   map[K]*keyRuns[K]
	roots  [numClasses]keyRuns[K] // of the lists
	counts [numClasses]int
	causes map[runCause]*runCause
	ended  bool
}

func (p *pastRuns[K]) open(of *History) {
	p.begin(of)
	of.join(p) // without p.mu: see shrink
}

func (p *pastRuns[K]) begin(of *History) {
	p.mu.Lock() // it may be asked already
	defer p.mu.Unlock()
	p.history, p.keys, p.causes = of, map[K]*keyRuns[K]{}, map[runCause]*runCause{}
	if f, ok := any(func(key types.NamespacedName) types.NamespacedName { return key }).(func(K) types.NamespacedName); ok {
		p.named = f
	}
	for i := range p.roots {
		p.roots[i].prev, p.roots[i].next = &p.roots[i], &p.roots[i]
	}
}

// close forgets everything.
func (p *pastRuns[K]) close() {
	p.history.leave(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.keys {
		p.history.used.Add(-k.bytes())
	}
	p.keys, p.counts, p.ended = nil, [numClasses]int{}, true
}

// note remembers a Reconcile that has returned, and whose key is not settled yet.
func (p *pastRuns[K]) note(r *running[K], end *ending, took time.Duration) {
	if p.history.limit <= 0 {
		return
	}
	run := pastRun{at: time.Now().UnixNano(), took: took, after: end.result.RequeueAfter, outcome: indexOf(end.outcome)}
	if wrote := r.wrote(); wrote != nil {
		run.wrote = textOf(wrote.Writes())
	}
	reason, _ := r.item.NewestReason()
	if reason.ResourceVersion != "" { // ParseUint allocates its error
		run.version, _ = strconv.ParseUint(reason.ResourceVersion, 10, 64)
	}
	key := r.item.Key()
	run.named = p.named != nil && isNamed(reason.Object, p.named(key))
	if !run.named && reason.Object != "" {
		run.object = new(strings.Clone(reason.Object))
	}
	p.add(key, &run, &reason)
	p.history.shrink()
}

func (p *pastRuns[K]) add(key K, run *pastRun, reason *workqueue.Reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	run.cause = p.causeLocked(reason)
	k, before := p.keys[key], int64(0)
	if k == nil {
		k = &keyRuns[K]{key: key}
		if p.named != nil {
			k.text = int32(len(p.named(key).Namespace) + len(p.named(key).Name))
		}
		p.keys[key] = k
	} else {
		before = k.bytes()
		p.unlinkLocked(k)
	}
	k.add(run)
	class := healthyKeys
	switch {
	case !run.failed():
	case len(k.runs) == 1:
		class = shortenedKeys
	default:
		class = failingKeys
	}
	p.linkLocked(k, class)
	p.history.used.Add(k.bytes() - before)
}

func (p *pastRuns[K]) causeLocked(r *workqueue.Reason) *runCause {
	c := runCause{r.Source, r.Event[:min(len(r.Event), mostEvent)]}
	known := p.causes[c]
	if known == nil {
		if len(p.causes) >= mostCauses {
			clear(p.causes) // Reconciles may refer to other causes
		}
		known = &runCause{c.source, strings.Clone(c.event)}
		p.causes[*known] = known
	}
	return known
}

// add forgets the oldest Reconciles: of a healthy key, more of them.
func (k *keyRuns[K]) add(run *pastRun) {
	most := mostRuns
	if o := outcomes[run.outcome]; o == hook.Succeeded || o == hook.RequeuedAfter {
		most = mostHealthy
	}
	if over := len(k.runs) + 1 - most; over > 0 {
		n := copy(k.runs, k.runs[over:])
		clear(k.runs[n:])
		k.runs = k.runs[:n]
	}
	k.runs = append(k.runs, *run)
}

func (p *pastRuns[K]) linkLocked(k *keyRuns[K], class int) {
	root := &p.roots[class]
	k.class, k.prev, k.next = int8(class), root, root.next
	k.prev.next, k.next.prev = k, k
	p.counts[class]++
}

func (p *pastRuns[K]) unlinkLocked(k *keyRuns[K]) {
	k.prev.next, k.next.prev = k.next, k.prev
	p.counts[k.class]--
}

// mapOverhead is what a key takes in a map of growing size, beside itself, as measured with
// 1,000,000 failing keys.
const mapOverhead = 64

// bytes estimates the size, with the map's part.
func (k *keyRuns[K]) bytes() int64 {
	n := int(unsafe.Sizeof(*k)+unsafe.Sizeof(k.key)) + int(k.text) + mapOverhead + cap(k.runs)*int(unsafe.Sizeof(pastRun{}))
	for i := range k.runs {
		if o := k.runs[i].object; o != nil {
			n += 16 + len(*o)
		}
		if w := k.runs[i].wrote; w != nil {
			for _, text := range *w {
				n += 16 + len(text)
			}
		}
	}
	return int64(n)
}

// count implements forgetful.
func (p *pastRuns[K]) count(class int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[class]
}

// forget implements forgetful.
func (p *pastRuns[K]) forget(class, n int) {
	p.forgot.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; n > 0 && p.counts[class] > 0; n-- {
		k := p.roots[class].prev
		before := k.bytes()
		p.unlinkLocked(k)
		if class != failingKeys {
			delete(p.keys, k.key)
			p.history.used.Add(-before)
			continue
		}
		k.runs = append([]pastRun(nil), k.runs[len(k.runs)-1])
		p.linkLocked(k, shortenedKeys)
		p.history.used.Add(k.bytes() - before)
	}
}

// of returns the remembered Reconciles of a key, oldest first.
func (p *pastRuns[K]) of(key K) []pastRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.keys[key]; k != nil {
		return append([]pastRun(nil), k.runs...)
	}
	return nil
}

// isNamed reports whether a text is a name, without an allocation.
func isNamed(text string, name types.NamespacedName) bool {
	if name.Namespace == "" {
		return text == name.Name
	}
	n := len(name.Namespace)
	return len(text) == n+1+len(name.Name) && text[:n] == name.Namespace && text[n] == '/' && text[n+1:] == name.Name
}

func indexOf(o hook.Outcome) uint8 {
	for i, other := range outcomes {
		if o == other {
			return uint8(i)
		}
	}
	return 0
}

func textOf(writes []ledger.Write) *[]string {
	var all []string
	for i := range writes {
		if i == mostWrote {
			all = append(all, fmt.Sprintf("and %d more", len(writes)-i))
			break
		}
		w := &writes[i]
		text := fmt.Sprintf("%s (%s at version %s)", &w.Request, w.Effect, w.ResourceVersion)
		all = append(all, strings.Replace(text, " at version )", ")", 1))
	}
	return &all
}

// describe describes a Reconcile in one line.
func (r *pastRun) describe(key string) string {
	line := fmt.Sprintf("Reconcile until %s, for %s: %s, %s", time.Unix(0, r.at).Format(time.RFC3339), rounded(r.took), outcomes[r.outcome], r.effect())
	if because := r.because(key); because != "" {
		line += "; because of " + because + ", by " + r.cause.source
	}
	return line
}

// effect describes the writes.
func (r *pastRun) effect() string {
	switch {
	case r.wrote == nil:
		return "wrote nothing"
	case len(*r.wrote) == 0:
		return "wrote nothing because its writes were refused"
	}
	return "wrote " + strings.Join(*r.wrote, ", ")
}

// because describes the newest reason, or is empty.
func (r *pastRun) because(key string) string {
	text := r.cause.event
	switch {
	case r.named:
		text += " of " + key
	case r.object != nil:
		text += " of " + *r.object
	}
	if r.version != 0 {
		text += fmt.Sprintf(" at version %d", r.version)
	}
	return text
}

// wroteVersion reports whether a write has made a version.
func (r *pastRun) wroteVersion(version string) bool {
	return r.wrote != nil && slices.ContainsFunc(*r.wrote, func(text string) bool { return strings.HasSuffix(text, " at version "+version+")") })
}
