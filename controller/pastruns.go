// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// How many Reconciles of a key are remembered.
const (
	mostRuns    = 8
	mostHealthy = 2
)

// runCause is what few reasons differ in.
type runCause struct{ source, event string }

// mostCauses limits the known causes.
const mostCauses = 256

// How much of a reason's source and event is kept.
const (
	mostSource = 256
	mostEvent  = 64
)

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
	name    string // of the controller
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

func (p *pastRuns[K]) open(name string, of *History) {
	p.begin(name, of)
	of.join(p) // without p.mu: see shrink
}

func (p *pastRuns[K]) begin(name string, of *History) {
	p.mu.Lock() // it may be asked already
	defer p.mu.Unlock()
	p.name, p.history, p.keys, p.causes = name, of, map[K]*keyRuns[K]{}, map[runCause]*runCause{}
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
	reason, _ := r.item.NewestReason()
	run := r.ended(end, took, &reason, p.named)
	p.add(r.item.Key(), &run, &reason)
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
		k.text = int32(textSize(key)) //nolint:gosec // of a key
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
	c := runCause{r.Source[:min(len(r.Source), mostSource)], r.Event[:min(len(r.Event), mostEvent)]}
	known := p.causes[c]
	if known == nil {
		if len(p.causes) >= mostCauses {
			clear(p.causes) // Reconciles may refer to other causes
		}
		known = &runCause{strings.Clone(c.source), strings.Clone(c.event)}
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
		n += k.runs[i].more.bytes()
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

// textSize returns the bytes of a key's strings, as far as its type is known.
func textSize(key any) int {
	switch k := key.(type) {
	case types.NamespacedName:
		return len(k.Namespace) + len(k.Name)
	case handler.ClusterKey:
		return len(k.Cluster) + len(k.Namespace) + len(k.Name)
	case string:
		return len(k)
	}
	return 0
}

// mostSearched is how many keys of a class writer looks at, last used first.
const mostSearched = 100_000

// writer implements forgetful. A Reconcile that was caused by the version, or a later one, has not
// made it.
func (p *pastRuns[K]) writer(object string, version uint64, surely bool) (w writer, ok bool) {
	text := strconv.FormatUint(version, 10)
	key, run, ok := p.search(func(r *pastRun) bool {
		wrote, sure := r.wrote(object, text)
		return wrote && (sure || !surely) && r.version < version
	})
	if ok {
		w = writer{p.name, fmt.Sprint(key), surely, run}
	}
	return w, ok
}

func (p *pastRuns[K]) search(is func(*pastRun) bool) (key K, found pastRun, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for class := range p.roots {
		root := &p.roots[class]
		for k, n := root.next, 0; k != root && k != nil && n < mostSearched; k, n = k.next, n+1 {
			for i := range k.runs {
				if is(&k.runs[i]) {
					return k.key, k.runs[i], true
				}
			}
		}
	}
	return key, found, false
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
