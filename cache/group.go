// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
)

// group is the informers of one handle's scope: one, or one for each namespace or name. It lives until the handle and every
// subscription have let it go.
type group struct {
	cache   *Cache
	key     key // of everything; members have it at their place
	scope   Scope
	inform  func(key) *informer     // makes the informer of a place
	members atomic.Pointer[members] // replaced, never changed

	declared atomic.Bool // by a controller, at any time

	mu        sync.Mutex // guards what follows, and the replacing of members
	refs      int
	listeners map[listener]struct{}
	indexers  toolscache.Indexers
	wrong     error // what of the scope could not be followed
}

// listener is told of the informers of a group, under its lock.
type listener interface {
	// joinLocked adds an informer, unless the listener has yet to retire it.
	joinLocked(i *informer) error
	// leaveLocked removes an informer. What it returns ends that, off the lock. It is nil if there is
	// nothing to do, else it must be called.
	leaveLocked(i *informer) (retire func())
}

// members is the informers of a group. Most groups have the one of everything.
type members struct {
	everything *informer
	by         map[place]*informer
}

func newGroup(c *Cache, k key, s Scope, inform func(key) *informer) *group {
	g := &group{cache: c, key: k, scope: s, inform: inform, refs: 1, listeners: map[listener]struct{}{}, indexers: toolscache.Indexers{}}
	g.members.Store(&members{})
	s.tell(g, g.follow)
	g.follow()
	return g
}

// follow makes the members those that the scope wants now.
func (g *group) follow() {
	left := g.update()
	g.cache.ring() // a goroutine may be waiting for one that has left
	for _, d := range left {
		d.informer.copy.Look()
		g.cache.later(func() {
			for _, retire := range d.retiring {
				retire()
			}
			g.cache.release(d.informer)
		})
	}
}

// departure is a member that left its group.
type departure struct {
	informer *informer
	retiring []func() // of the listeners
}

// update brings new members in, and returns those that left.
func (g *group) update() (left []departure) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wanted := map[place]bool{}
	g.wrong = nil
	if g.refs > 0 {
		wanted, g.wrong = g.scope.places()
	}
	now := map[place]*informer{}
	for p, i := range g.members.Load().by {
		if wanted[p] {
			now[p] = i
		} else {
			left = append(left, departure{i, g.leaveLocked(i)})
		}
	}
	for p := range wanted {
		if now[p] == nil {
			now[p] = g.joinLocked(p)
		}
	}
	g.members.Store(&members{everything: now[place{}], by: now})
	return left
}

func (g *group) joinLocked(p place) *informer {
	i := g.cache.acquire(g.key.at(p), g.inform)
	_ = i.shared.AddIndexers(g.indexers) // the names are unique; it fails only if the informer has stopped
	for l := range g.listeners {
		_ = l.joinLocked(i) // as well
	}
	return i
}

func (g *group) leaveLocked(i *informer) (retiring []func()) {
	for l := range g.listeners {
		if retire := l.leaveLocked(i); retire != nil {
			retiring = append(retiring, retire)
		}
	}
	return retiring
}

// hold keeps the group alive, unless it has ended. It must be let go.
func (g *group) hold() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refs > 0 {
		g.refs++
	}
	return g.refs > 0
}

// letGo ends the group if nobody else holds it.
func (g *group) letGo() {
	g.mu.Lock()
	g.refs--
	last := g.refs == 0
	g.mu.Unlock()
	if last {
		g.scope.tell(g, nil)
		g.follow()
	}
}

// member returns the informer that keeps what has this name.
func (g *group) member(name types.NamespacedName) (*informer, error) {
	m := g.members.Load()
	if m.everything != nil {
		return m.everything, nil
	}
	for _, p := range [...]place{{Namespace: name.Namespace}, name} {
		if i := m.by[p]; i != nil {
			return i, nil
		}
	}
	if name.Namespace == "" && g.scope.Namespaces != nil {
		return nil, fmt.Errorf("%s is a namespaced kind: name the namespace", g.key.gvk.Kind)
	}
	return nil, fmt.Errorf("%s is outside the scope of this handle; widen its cache.Scope, or use another handle", storeKey(name))
}

// within returns the informers that keep what is in a namespace; all of them if it is empty.
func (g *group) within(namespace string) ([]*informer, error) {
	var list []*informer
	for p, i := range g.members.Load().by {
		if namespace == "" || p.Namespace == "" || p.Namespace == namespace {
			list = append(list, i)
		}
	}
	if namespace != "" && len(list) == 0 {
		return nil, fmt.Errorf("the namespace %s is outside the scope of this handle; widen its cache.Scope, or use another handle", namespace)
	}
	return list, nil
}

// state merges where the members stand.
func (g *group) state(sized bool) hook.InformerState {
	members := g.members.Load().by
	all := hook.InformerState{Kind: g.key.kind(), Scope: g.describe(), Phase: hook.Synced}
	if err := g.mistake(); err != nil {
		all.Phase, all.Err, all.Since = hook.Failing, err, time.Now()
	}
	for _, i := range members {
		s := i.state()
		if sized {
			s.Objects, s.Bytes = i.size()
		}
		if len(members) == 1 && all.Err == nil {
			return s
		}
		all = merge(all, s)
	}
	return all
}

// mistake returns what is wrong with the scope.
func (g *group) mistake() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wrong
}

// describe says in words what of the kind is kept, and as what. It is empty for all objects as usual.
func (g *group) describe() string {
	words := g.key.String()
	add := func(text string) { words = strings.TrimPrefix(words+", "+text, ", ") }
	switch s := g.scope; {
	case selectsNothing(s.Labels) || selectsNothing(s.Fields):
		add("nothing")
	case s.Namespaces != nil:
		add(list("namespace", s.Namespaces.Elements()))
	case s.Names != nil:
		var names []string
		for _, name := range s.Names.Elements() {
			names = append(names, storeKey(name))
		}
		add(list("name", names))
	}
	return words
}

// list names a few things, or counts them.
func list(what string, names []string) string {
	slices.Sort(names)
	switch {
	case len(names) == 1:
		return what + " " + names[0]
	case len(names) < 4 && len(names) > 0:
		return what + "s " + strings.Join(names, " ")
	default:
		return fmt.Sprintf("%d %ss", len(names), what)
	}
}

// merge adds a member's state to that of the others.
func merge(all, s hook.InformerState) hook.InformerState {
	if worse(s.Phase) > worse(all.Phase) || all.Since.IsZero() {
		all.Phase, all.Err, all.Since = s.Phase, s.Err, s.Since
		if s.Err != nil {
			all.Err = fmt.Errorf("%s: %w", s.Scope, s.Err)
		}
	}
	all.Lists, all.Watches, all.Quiet = all.Lists+s.Lists, all.Watches+s.Watches, all.Quiet+s.Quiet
	all.Broken = append(all.Broken, s.Broken...)
	all.Broken = all.Broken[:min(len(all.Broken), 10)]
	all.BrokenCount += s.BrokenCount
	all.Objects, all.Bytes = all.Objects+s.Objects, all.Bytes+s.Bytes
	return all
}

// worse orders the phases.
func worse(p hook.Phase) int {
	switch p {
	case hook.Synced:
		return 0
	case hook.Syncing:
		return 1
	case hook.NotStarted:
		return 2
	case hook.Waiting:
		return 3
	case hook.Failing:
		return 4
	default:
		return 5
	}
}

// await waits until every member fulfils a condition that the state of the cache tells of. It returns an error when ctx ends, or
// when a member has stopped.
func (g *group) await(ctx context.Context, done func(*informer) bool) error {
	for {
		changed := g.cache.changed()
		waiting := g.first(func(i *informer) bool { return !done(i) })
		if waiting == nil {
			return nil
		}
		select {
		case <-changed:
		case <-waiting.synced():
			if !done(waiting) {
				return fmt.Errorf("not synced: %s", waiting.state())
			}
		case <-waiting.stopped:
			if !done(waiting) && g.has(waiting) {
				return fmt.Errorf("not synced, and never will be: %s", waiting.state())
			}
		case <-ctx.Done():
			return fmt.Errorf("not synced: %s: %w", waiting.state(), context.Cause(ctx))
		}
	}
}

// has says whether an informer is a member now.
func (g *group) has(i *informer) bool {
	return g.first(func(other *informer) bool { return other == i }) != nil
}

func (g *group) first(is func(*informer) bool) *informer {
	for _, i := range g.members.Load().by {
		if is(i) {
			return i
		}
	}
	return nil
}

// keeper returns the informer of the group that keeps the object, or nil.
func (g *group) keeper(w *consistency.Write) *informer {
	m := g.members.Load()
	i := m.everything
	if i == nil {
		i = m.keeper(w)
	}
	if i == nil || !i.copy.Keeps(w) {
		return nil
	}
	if w.Host != "" {
		if host := g.cache.host(); host != "" && host != w.Host {
			return nil
		}
	}
	return i
}

func (m *members) keeper(w *consistency.Write) *informer {
	if w.Hashed == nil {
		return cmp.Or(m.by[place{Namespace: w.Namespace}], m.by[w.At()])
	}
	for p, i := range m.by {
		if w.In(p) {
			return i
		}
	}
	return nil
}

// mapping returns how the kind was served last, or nil if nobody has asked yet.
func (g *group) mapping() *meta.RESTMapping {
	for _, i := range g.members.Load().by {
		if m := i.copy.Mapping.Load(); m != nil {
			return m
		}
	}
	if g.cache.backend == nil {
		return nil
	}
	return g.cache.backend.Known(g.key.gvk)
}

// String names the kind, and the scope if it is not everything.
func (g *group) String() string {
	if scope := g.describe(); scope != "" {
		return g.key.kind() + " (" + scope + ")"
	}
	return g.key.kind()
}

// sameScope says whether two groups keep the same.
func (g *group) sameScope(other *group) bool {
	return g.key == other.key && g.cache == other.cache &&
		g.scope.Namespaces == other.scope.Namespaces && g.scope.Names == other.scope.Names
}
