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

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/builtin"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// group is the informers of one handle's scope: one, or one for each namespace or name. It lives
// until the handle and all subscriptions have released it.
type group struct {
	cache   *Cache
	key     key // of everything; members add their place
	scope   Scope
	inform  func(key) *informer
	members atomic.Pointer[members] // replaced, never changed

	mu        sync.Mutex // guards the fields below and writes of members
	refs      int
	listeners map[listener]struct{}
	indexes   []*indexFunc
	wrong     error // of an invalid scope
	kind      kindScope
}

// listener follows the informers of a group. Its methods are called under the group's lock.
type listener interface {
	joinLocked(i *informer) error
	// leaveLocked removes an informer. retire, unless nil, must be called without the lock.
	leaveLocked(i *informer) (retire func())
}

// kindScope matters only for inherited namespaces.
type kindScope struct {
	known         bool // else the kind is assumed to be namespaced
	clusterScoped bool
}

// members are the informers of a group. Most groups have only everything.
type members struct {
	everything *informer
	by         map[place]*informer
	kind       kindScope // when they were chosen
}

func newGroup(c *Cache, k key, s Scope, inform func(key) *informer) *group {
	k.cluster = c.cluster
	g := &group{cache: c, key: k, scope: s, inform: inform, refs: 1, listeners: map[listener]struct{}{}}
	g.members.Store(&members{})
	if builtin.ClusterScoped(k.gvk.GroupKind()) {
		g.kind = kindScope{known: true, clusterScoped: true}
	} else if m := g.knownMapping(); m != nil {
		g.kind = kindScope{known: true, clusterScoped: !isNamespaced(m)}
	}
	c.groups.Store(g, nil)
	s.tell(g, g.follow)
	g.follow()
	return g
}

// learn chooses other members if inherited namespaces do not fit the kind after all.
func (g *group) learn(m *meta.RESTMapping) {
	if g.scope.inherited && g.learned(kindScope{known: true, clusterScoped: !isNamespaced(m)}) {
		g.follow()
	}
}

func (g *group) learned(kind kindScope) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	changed = g.kind != kind
	g.kind = kind
	return changed
}

func (g *group) placesLocked() (map[place]bool, error) {
	s := g.scope
	if s.inherited && g.kind.clusterScoped {
		s.Namespaces = nil
	}
	return s.places()
}

func (g *group) follow() {
	left := g.update()
	g.cache.ring() // a goroutine may wait for a member that has left
	for _, d := range left {
		d.informer.view.Look()
		g.cache.later(func() {
			for _, retire := range d.retiring {
				retire()
			}
			g.cache.release(d.informer)
		})
	}
}

type departure struct {
	informer *informer
	retiring []func()
}

func (g *group) update() (left []departure) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wanted := map[place]bool{}
	g.wrong = nil
	if g.refs > 0 {
		wanted, g.wrong = g.placesLocked()
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
	g.members.Store(&members{everything: now[place{}], by: now, kind: g.kind})
	return left
}

func (g *group) joinLocked(p place) *informer {
	fixed := !g.scope.inherited || p == (place{}) && !g.kind.clusterScoped
	i := g.cache.acquire(g.key.at(p), g.inform, fixed)
	i.addIndexes(g.indexes...)
	for l := range g.listeners {
		_ = l.joinLocked(i) // fails only if the informer has stopped
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

// hold takes a reference, for a letGo, unless the group has ended.
func (g *group) hold() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refs > 0 {
		g.refs++
	}
	return g.refs > 0
}

func (g *group) letGo() {
	g.mu.Lock()
	g.refs--
	last := g.refs == 0
	g.mu.Unlock()
	if last {
		g.cache.groups.Delete(g)
		g.scope.tell(g, nil)
		g.follow()
	}
}

// located waits until the members are final: inherited namespaces depend on whether the kind is
// namespaced.
func (g *group) located(ctx context.Context) error {
	for g.scope.inherited && !g.members.Load().kind.known {
		i := g.first(func(*informer) bool { return true })
		if i == nil {
			return nil
		}
		// An informer that is not wanted stops without a list.
		if err := i.readable(ctx); err != nil && !g.members.Load().kind.known {
			return err
		}
	}
	return nil
}

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
	return nil, fmt.Errorf("%s is outside the scope of this handle; widen its cache.Scope, or use another handle", object.Name(name))
}

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

// await waits until done is true for every member, until ctx ends or a member stops.
func (g *group) await(ctx context.Context, done func(*informer) bool) error {
	for {
		changed := g.cache.changed()
		waiting := g.first(func(i *informer) bool { return !done(i) })
		if waiting == nil {
			return nil
		}
		synced := waiting.synced()
		if waiting.key.slots != nil && waiting.HasSynced() {
			synced = nil // changed reports its slots
		}
		select {
		case <-changed:
		case <-synced:
			if !done(waiting) && waiting.key.slots == nil {
				return fmt.Errorf("%w: %w", ErrNotSynced, reason(waiting.state()))
			}
		case <-waiting.stopped:
			if !done(waiting) && g.has(waiting) {
				return fmt.Errorf("%w, and never will be: %w", ErrNotSynced, reason(waiting.state()))
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: %w", ErrNotSynced, reason(waiting.state()), context.Cause(ctx))
		}
	}
}

// awaitSome waits until each member is synced or fails, and at least one is synced.
func (g *group) awaitSome(ctx context.Context) error {
	for {
		changed := g.cache.changed()
		if err := g.await(ctx, (*informer).settled); err != nil {
			return err
		}
		failing := g.first(func(i *informer) bool { return !i.hasWanted() })
		if failing == nil || g.first((*informer).hasWanted) != nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: %w", ErrNotSynced, reason(failing.state()), context.Cause(ctx))
		}
	}
}

const mostNamed = 3

// behind names the members that are not synced.
func (g *group) behind() error {
	var all []string
	var unserved error
	for _, i := range g.members.Load().by {
		if phase, _, _ := i.at(); phase != hook.Synced {
			s := i.state()
			all, unserved = append(all, s.String()), cmp.Or(unserved, noMatch(s.Err))
		}
	}
	if all == nil {
		return nil
	}
	slices.Sort(all)
	more := ""
	if len(all) > mostNamed {
		more = fmt.Sprintf("; and %d more", len(all)-mostNamed)
	}
	return &notCurrent{strings.Join(all[:min(len(all), mostNamed)], "; ") + more, unserved}
}

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

func (g *group) informerFor(w *consistency.Write) *informer {
	m := g.members.Load()
	i := m.everything
	if i == nil {
		i = m.informerFor(w)
	}
	if i == nil || !g.keeps(i, w) {
		return nil
	}
	return i
}

func (m *members) informerFor(w *consistency.Write) *informer {
	return cmp.Or(m.by[place{Namespace: w.Namespace}], m.by[w.At()])
}

// informersFor returns all informers that may keep objects of a batch.
func (g *group) informersFor(w *consistency.Write) (all []*informer) {
	for _, i := range g.members.Load().by {
		if g.keeps(i, w) {
			all = append(all, i)
		}
	}
	return all
}

func (g *group) keeps(i *informer, w *consistency.Write) bool {
	if w.In != nil {
		return w.In == &i.view
	}
	if w.Batch == nil || w.Resource.Resource != "" {
		if !i.view.Keeps(w) {
			return false
		}
	}
	if w.Host == "" {
		return true
	}
	host := g.cache.host()
	return host == "" || host == w.Host
}

func (g *group) mapping() *meta.RESTMapping {
	for _, i := range g.members.Load().by {
		if m := i.view.Mapping.Load(); m != nil {
			return m
		}
	}
	return g.knownMapping()
}

func (g *group) knownMapping() *meta.RESTMapping {
	if g.cache.backend == nil {
		return nil
	}
	return g.cache.backend.Known(g.key.gvk)
}

func (g *group) sameScope(other *group) bool {
	return g.key == other.key && g.cache == other.cache &&
		g.scope.Namespaces == other.scope.Namespaces && g.scope.Names == other.scope.Names
}
