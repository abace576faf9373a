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

// undecodable is the objects that do not fit their Go type.
type undecodable struct {
	report func(object string, err error) // called off the lock
	n      atomic.Int64                   // of objects, so that nobody has to lock as long as there is none

	mu      sync.Mutex // guards what follows
	objects map[types.NamespacedName]undecoded
	list    int // counts the initial lists
}

type undecoded struct {
	err  error
	list int // the last one that had it
}

func (u *undecodable) add(o metav1.Object, err error) {
	name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	u.put(name, err)
	if u.report != nil {
		u.report(name.String(), err)
	}
}

func (u *undecodable) put(name types.NamespacedName, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.objects == nil {
		u.objects = map[types.NamespacedName]undecoded{}
	}
	u.objects[name] = undecoded{err, u.list}
	u.n.Store(int64(len(u.objects)))
}

// fits takes down that an object was decoded, or that it is gone.
func (u *undecodable) fits(o metav1.Object) {
	if u.n.Load() == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.objects, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
	u.n.Store(int64(len(u.objects)))
}

// beginList takes down that all objects come anew.
func (u *undecodable) beginList() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.list++
}

// endList forgets those that have not come anew. Until then, a read must not take them for objects that are not there (S9).
func (u *undecodable) endList() {
	u.drop(func(_ types.NamespacedName, o undecoded) bool { return o.list < u.list })
}

// prune forgets those that a store does not have.
func (u *undecodable) prune(store toolscache.Store) {
	u.drop(func(name types.NamespacedName, _ undecoded) bool {
		_, there, _ := store.GetByKey(storeKey(name))
		return !there
	})
}

func (u *undecodable) drop(gone func(types.NamespacedName, undecoded) bool) {
	if u.n.Load() == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.objects, gone)
	u.n.Store(int64(len(u.objects)))
}

// of returns why an object cannot be decoded, or nil.
func (u *undecodable) of(name types.NamespacedName) error {
	if u.n.Load() == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.objects[name].err
}

// all returns a copy.
func (u *undecodable) all() map[types.NamespacedName]error {
	if u.n.Load() == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make(map[types.NamespacedName]error, len(u.objects))
	for name, o := range u.objects {
		all[name] = o.err
	}
	return all
}

// some returns a few of them in words, in a fixed order, and how many there are.
func (u *undecodable) some() (few []string, all int) {
	for name, err := range u.all() {
		few = append(few, fmt.Sprintf("%s: %v", name, err))
	}
	slices.Sort(few)
	return few[:min(len(few), 10)], len(few)
}
