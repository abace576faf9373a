// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// broken is the objects that are not as they should be.
type broken struct {
	report func(object string, err error) // called off the lock
	n      atomic.Int64                   // of objects, so that nobody has to lock as long as there is none

	mu      sync.Mutex // guards what follows
	objects map[types.NamespacedName]breakage
	list    int // counts the initial lists
}

type breakage struct {
	err  error
	list int // the last one that had it
}

func (b *broken) add(o metav1.Object, err error) {
	name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	if news := b.put(name, err); news && b.report != nil {
		b.report(name.String(), err)
	}
}

func (b *broken) put(name types.NamespacedName, err error) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects == nil {
		b.objects = map[types.NamespacedName]breakage{}
	}
	before := b.objects[name]
	b.objects[name] = breakage{err, b.list}
	b.n.Store(int64(len(b.objects)))
	return before.err == nil || before.list < b.list || before.err.Error() != err.Error()
}

// fits takes down that an object was decoded, or that it is gone.
func (b *broken) fits(o metav1.Object) {
	if b.n.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
	b.n.Store(int64(len(b.objects)))
}

// beginList takes down that all objects come anew.
func (b *broken) beginList() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list++
}

// endList forgets those that have not come anew. Until then, a read must not take them for objects that are not there (S9).
func (b *broken) endList() {
	b.drop(func(_ types.NamespacedName, o breakage) bool { return o.list < b.list })
}

// prune forgets those that a store does not have.
func (b *broken) prune(store toolscache.Store) {
	b.drop(func(name types.NamespacedName, _ breakage) bool {
		_, there, _ := store.GetByKey(storeKey(name))
		return !there
	})
}

func (b *broken) drop(gone func(types.NamespacedName, breakage) bool) {
	if b.n.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.objects, gone)
	b.n.Store(int64(len(b.objects)))
}

// of returns why an object cannot be decoded, or nil.
func (b *broken) of(name types.NamespacedName) error {
	if b.n.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects[name].err
}

// all returns a copy.
func (b *broken) all() map[types.NamespacedName]error {
	if b.n.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[types.NamespacedName]error, len(b.objects))
	for name, o := range b.objects {
		all[name] = o.err
	}
	return all
}

// some returns a few of them in words, in a fixed order, and how many there are.
func (b *broken) some() (few []string, all int) {
	for name, err := range b.all() {
		few = append(few, fmt.Sprintf("%s: %v", name, err))
	}
	slices.Sort(few)
	return few[:min(len(few), 10)], len(few)
}
