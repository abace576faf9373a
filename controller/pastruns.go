// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/slab"
)

// How many Reconciles of a key are remembered.
const (
	mostRuns    = 8
	mostHealthy = 2
)

// mostCauses limits the known causes.
const mostCauses = 256

// How much of a reason's source and event is kept.
const (
	mostSource = 256
	mostEvent  = 64
)

// pastRuns remembers the last Reconciles of a controller's keys, within the limit of a History.
type pastRuns[K comparable] struct {
	name    string // of the controller
	history *History
	named   func(K) types.NamespacedName // or nil
	forgot  atomic.Bool                  // some key was forgotten

	mu      sync.Mutex // guards what follows
	seed    maphash.Seed
	indexes map[uint64]uint32 // of keys, by hash
	keys    slab.Slab[keyRuns]
	runs    slab.Slab[storedRun]
	more    map[uint32]*runMore // of runs
	kept    map[uint32]K        // the keys, unless their text is enough: see parseKey
	lists   [numClasses]uint32  // a root in keys of each class
	counts  [numClasses]int
	causes  []runCause
	known   map[runCause]uint16 // indexes of causes
	ended   bool
}

func (p *pastRuns[K]) open(name string, of *History) {
	p.begin(name, of)
	of.join(p) // without p.mu: see shrink
}

func (p *pastRuns[K]) begin(name string, of *History) {
	p.mu.Lock() // it may be asked already
	defer p.mu.Unlock()
	p.name, p.history, p.seed = name, of, maphash.MakeSeed()
	p.indexes, p.more, p.known = map[uint64]uint32{}, map[uint32]*runMore{}, map[runCause]uint16{}
	if _, ok := parseKey[K](""); !ok {
		p.kept = map[uint32]K{}
	}
	if f, ok := any(func(key types.NamespacedName) types.NamespacedName { return key }).(func(K) types.NamespacedName); ok {
		p.named = f
	}
	for class := range p.lists {
		i, root := p.keys.Take()
		root.prev, root.next, p.lists[class] = i, i, i
	}
}

// close forgets everything.
func (p *pastRuns[K]) close() {
	p.history.leave(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.indexes {
		p.history.used.Add(-p.bytesLocked(p.keys.At(i)))
	}
	p.indexes, p.more, p.kept, p.counts, p.ended = nil, nil, nil, [numClasses]int{}, true
	p.keys.Reset()
	p.runs.Reset()
}

// note remembers a Reconcile that has returned, and whose key is not settled yet.
func (p *pastRuns[K]) note(r *running[K], end *ending, took time.Duration) {
	if p.history.limit <= 0 {
		return
	}
	reason, _ := r.item.NewestReason()
	run := r.ended(end, took, &reason, p.named)
	run.cause = runCause{reason.Source[:min(len(reason.Source), mostSource)], reason.Event[:min(len(reason.Event), mostEvent)]}
	p.add(r.item.Key(), &run)
	p.history.shrink()
}

func (p *pastRuns[K]) add(key K, run *pastRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	hash, before := maphash.Comparable(p.seed, key), int64(0)
	i, ok := p.indexes[hash]
	if ok {
		before = p.bytesLocked(p.keys.At(i))
	} else {
		i = p.takeLocked(hash, key)
	}
	k := p.keys.At(i)
	p.addLocked(k, run)
	class := healthyKeys
	switch {
	case !run.failed():
	case k.n == 1:
		class = shortenedKeys
	default:
		class = failingKeys
	}
	switch {
	case !ok:
		p.linkLocked(i, class)
	case int(k.class) == class:
		k.used = true
	default:
		p.unlinkLocked(i)
		p.linkLocked(i, class)
	}
	p.history.used.Add(p.bytesLocked(k) - before)
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
	for n > 0 && p.counts[class] > 0 {
		i := p.keys.At(p.lists[class]).prev
		k := p.keys.At(i)
		if k.used {
			p.unlinkLocked(i)
			p.linkLocked(i, class)
			continue
		}
		n--
		before := p.bytesLocked(k)
		p.unlinkLocked(i)
		for k.n > 1 {
			p.dropOldestLocked(k)
		}
		if class == failingKeys {
			p.linkLocked(i, shortenedKeys)
			p.history.used.Add(p.bytesLocked(k) - before)
			continue
		}
		p.dropOldestLocked(k)
		delete(p.indexes, k.hash)
		delete(p.kept, i)
		p.keys.Put(i)
		p.history.used.Add(-before)
	}
}

// textSize returns the bytes of a kept key's strings, as far as its type is known.
func textSize(key any) int {
	if k, ok := key.(handler.ClusterKey); ok {
		return len(k.Cluster) + len(k.Namespace) + len(k.Name)
	}
	return 0
}

// mostSearched is how many keys of a class writer looks at, last used first.
const mostSearched = 100_000

// writer implements forgetful. A Reconcile that was caused by the version, or a later one, has not
// made it.
func (p *pastRuns[K]) writer(object string, version uint64, surely bool) (w writer, ok bool) {
	text := strconv.FormatUint(version, 10)
	run, ok := p.search(func(r *pastRun) bool {
		wrote, sure := r.wrote(object, text)
		return wrote && (sure || !surely) && r.version < version
	})
	if ok {
		w = writer{p.name, run.more.key, surely, run}
	}
	return w, ok
}

// search looks among the Reconciles that have more than figures.
func (p *pastRuns[K]) search(is func(*pastRun) bool) (found pastRun, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.indexes == nil { // it has not begun, or ended
		return found, false
	}
	for _, root := range p.lists {
		i := root
		for range mostSearched {
			k := p.keys.At(i)
			for j, r := range p.allLocked(k) {
				if found = p.pastLocked(j, r); r.more && is(&found) {
					return found, true
				}
			}
			if i = k.next; i == root {
				break
			}
		}
	}
	return pastRun{}, false
}

// of returns the remembered Reconciles of a key, oldest first.
func (p *pastRuns[K]) of(key K) (all []pastRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.findLocked(key); k != nil {
		for i, r := range p.allLocked(k) {
			all = append(all, p.pastLocked(i, r))
		}
	}
	return all
}

// took returns how long the last Reconcile of a key took, or 0.
func (p *pastRuns[K]) took(key K) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.findLocked(key); k != nil {
		return p.runs.At(k.newest).took
	}
	return 0
}

// find returns the known key with a text.
func (p *pastRuns[K]) find(text string) (key K, known bool) {
	key, ok := parseKey[K](text)
	p.mu.Lock()
	if ok {
		defer p.mu.Unlock()
		return key, p.findLocked(key) != nil
	}
	kept := slices.Collect(maps.Values(p.kept))
	p.mu.Unlock() // Sprint calls the key's code
	for _, key := range kept {
		if fmt.Sprint(key) == text {
			return key, true
		}
	}
	return key, false
}

// findLocked returns nil for an unknown key.
func (p *pastRuns[K]) findLocked(key K) *keyRuns {
	if len(p.indexes) == 0 {
		return nil
	}
	if i, ok := p.indexes[maphash.Comparable(p.seed, key)]; ok {
		return p.keys.At(i)
	}
	return nil
}

// parseKey returns the key with a text, if its type is known.
func parseKey[K comparable](text string) (key K, ok bool) {
	switch k := any(&key).(type) {
	case *types.NamespacedName:
		k.Namespace, k.Name, _ = strings.Cut(text, "/")
		return key, true
	case *string:
		*k = text
		return key, true
	}
	return key, false
}

// isNamed reports whether a text is a name, without an allocation.
func isNamed(text string, name types.NamespacedName) bool {
	if name.Namespace == "" {
		return text == name.Name
	}
	n := len(name.Namespace)
	return len(text) == n+1+len(name.Name) && text[:n] == name.Namespace && text[n] == '/' && text[n+1:] == name.Name
}
