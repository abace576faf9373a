// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

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

// Broken records objects that have an error: that they cannot be decoded, or that a function of the
// user's failed for them. It is empty as a rule, and then takes no lock. The zero value is ready for
// use, and is safe for concurrent use.
type Broken struct {
	// Report is called with each new error, off the lock. Set it before the first Add. Default: nothing
	// is called.
	Report func(object string, err error)

	n atomic.Int64 // of objects

	mu      sync.Mutex // guards what follows
	objects map[types.NamespacedName]breakage
	list    int // counts the lists
}

type breakage struct {
	err  error
	list int // the last one that had it
}

// NameOf returns the name of an object.
func NameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Add records the error of an object.
func (b *Broken) Add(o metav1.Object, err error) {
	name := NameOf(o)
	if news := b.put(name, err); news && b.Report != nil {
		b.Report(name.String(), err)
	}
}

func (b *Broken) put(name types.NamespacedName, err error) (news bool) {
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

// Remove records that an object has no error any more, or is gone.
func (b *Broken) Remove(o metav1.Object) {
	if b.n.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, NameOf(o))
	b.n.Store(int64(len(b.objects)))
}

// beginList records that all objects come again.
func (b *Broken) beginList() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list++
}

// endList forgets objects that the list did not have. Until then a read must not take them for
// objects that do not exist.
func (b *Broken) endList() {
	b.drop(func(_ types.NamespacedName, o breakage) bool { return o.list < b.list })
}

// Prune forgets objects that a store does not have.
func (b *Broken) Prune(store toolscache.Store) {
	b.drop(func(name types.NamespacedName, _ breakage) bool {
		_, there, _ := store.GetByKey(toolscache.ObjectName(name).String())
		return !there
	})
}

func (b *Broken) drop(gone func(types.NamespacedName, breakage) bool) {
	if b.n.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.objects, gone)
	b.n.Store(int64(len(b.objects)))
}

// Of returns the error of an object, or nil.
func (b *Broken) Of(name types.NamespacedName) error {
	if b.n.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects[name].err
}

// All returns a copy.
func (b *Broken) All() map[types.NamespacedName]error {
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

// Some describes a few of the objects, in a fixed order, and returns how many there are.
func (b *Broken) Some() (few []string, all int) {
	for name, err := range b.All() {
		few = append(few, fmt.Sprintf("%s: %v", name, err))
	}
	slices.Sort(few)
	return few[:min(len(few), 10)], len(few)
}
