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

// Broken records objects with an error: they cannot be decoded, or a user's function failed for
// them. It takes no lock while empty. The zero value is ready for use. It is safe for concurrent
// use.
type Broken struct {
	// Report is called with each new error, without locks. Set it before the first Add.
	Report func(object string, err error)

	n atomic.Int64 // number of objects

	mu      sync.Mutex // guards the fields below
	objects map[types.NamespacedName]breakage
	list    int // number of the current list
}

type breakage struct {
	err  error
	list int // the last list that had the error
}

// NameOf returns an object's name.
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

// Remove records that an object has no error or is gone.
func (b *Broken) Remove(o metav1.Object) {
	if b.n.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, NameOf(o))
	b.n.Store(int64(len(b.objects)))
}

func (b *Broken) beginList() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list++
}

// endList drops objects that were not in the list. Until then, reads return their errors, not
// NotFound.
func (b *Broken) endList() {
	b.drop(func(_ types.NamespacedName, o breakage) bool { return o.list < b.list })
}

// Prune drops objects that are not in a store.
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

// All returns a copy of the errors.
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

// Some describes up to ten of the objects, sorted, and returns the number of all.
func (b *Broken) Some() (few []string, all int) {
	for name, err := range b.All() {
		few = append(few, fmt.Sprintf("%s: %v", name, err))
	}
	slices.Sort(few)
	return few[:min(len(few), 10)], len(few)
}
