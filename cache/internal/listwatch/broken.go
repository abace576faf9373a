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

	"github.com/setpoint-dev/setpoint/internal/object"
)

// Broken records objects with an error: they cannot be decoded, or a user's function failed for
// them. It takes no lock while empty. The zero value is ready for use. It is safe for concurrent
// use.
type Broken struct {
	// Reporter gets each new error. Set it before the first Add. Default: none.
	Reporter Reporter

	n atomic.Int64 // number of objects

	mu      sync.Mutex // guards the fields below
	objects map[types.NamespacedName]breakage
	list    int // number of the current list
}

// Reporter reports broken objects. Package cache implements it.
type Reporter interface {
	// Broken is called without locks.
	Broken(object string, err error)
}

type breakage struct {
	err    error
	list   int     // the last list that had the error
	misfit *Misfit // nil unless the object cannot be decoded

	// over is set when the API server has no such object any more, or one without the error. Until
	// the store has reached the version, a reader would miss the object there.
	over    bool
	version string
}

// Add records the error of an object.
func (b *Broken) Add(o metav1.Object, err error) { b.add(object.Key(o), breakage{err: err}) }

// misfit records an object that cannot be decoded.
func (b *Broken) misfit(m *Misfit) { b.add(object.Key(m), breakage{err: m.Err, misfit: m}) }

func (b *Broken) add(name types.NamespacedName, one breakage) {
	if news := b.put(name, one); news && b.Reporter != nil {
		b.Reporter.Broken(name.String(), one.err)
	}
}

func (b *Broken) put(name types.NamespacedName, one breakage) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects == nil {
		b.objects = map[types.NamespacedName]breakage{}
	}
	before := b.objects[name]
	one.list = b.list
	b.objects[name] = one
	b.n.Store(int64(len(b.objects)))
	return before.err == nil || before.over || before.list < b.list || before.err.Error() != one.err.Error()
}

// Remove records that an object has no error or is gone.
func (b *Broken) Remove(o metav1.Object) {
	b.ifAny(func() { delete(b.objects, object.Key(o)) })
}

// ifAny calls do under the lock, if there are objects with errors.
func (b *Broken) ifAny(do func()) {
	if b.n.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
	b.n.Store(int64(len(b.objects)))
}

// mended records that an event has the object without the error, or its delete.
func (b *Broken) mended(o metav1.Object) {
	b.ifAny(func() {
		if name := object.Key(o); !b.objects[name].over {
			b.endLocked(name, o.GetResourceVersion())
		}
	})
}

func (b *Broken) endLocked(name types.NamespacedName, version string) {
	one, ok := b.objects[name]
	switch {
	case !ok:
	case one.misfit == nil:
		delete(b.objects, name)
	default:
		one.over, one.version = true, version
		b.objects[name] = one
	}
}

func (b *Broken) beginList() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list++
}

// endList ends the errors of objects that were not in the list, which has a version. Until then,
// reads return their errors, not NotFound.
func (b *Broken) endList(version string) {
	b.ifAny(func() {
		for name, o := range b.objects {
			if o.list < b.list {
				b.endLocked(name, version)
			}
		}
	})
}

// Prune drops objects that are not in a store.
func (b *Broken) Prune(store toolscache.Store) {
	b.ifAny(func() {
		maps.DeleteFunc(b.objects, func(name types.NamespacedName, _ breakage) bool {
			_, there, _ := store.GetByKey(object.Name(name))
			return !there
		})
	})
}

// Of returns the error of an object in a store, or nil.
func (b *Broken) Of(name types.NamespacedName, store toolscache.Store) (err error) {
	b.ifAny(func() {
		b.forgetLocked(store)
		err = b.objects[name].err
	})
	return err
}

// Misfits returns the objects that cannot be decoded. Those in the store are in an earlier state.
// To miss none, call it before you read the store.
func (b *Broken) Misfits(store toolscache.Store) (all map[types.NamespacedName]*Misfit) {
	b.ifAny(func() {
		b.forgetLocked(store)
		all = map[types.NamespacedName]*Misfit{}
		for name, o := range b.objects {
			if o.misfit != nil {
				all[name] = o.misfit
			}
		}
	})
	return all
}

// forgetLocked drops the errors that are over in a store.
func (b *Broken) forgetLocked(store toolscache.Store) {
	at := ""
	for name, o := range b.objects {
		if !o.over {
			continue
		}
		if at == "" {
			at = store.LastStoreSyncResourceVersion()
		}
		if passed(at, o.version) || stores(store, name, o.version) {
			delete(b.objects, name)
		}
	}
}

// passed also returns true if the versions cannot be compared, for example because client-go's
// store does not know its own.
func passed(at, version string) bool { return !object.Before(at, version) }

func stores(store toolscache.Store, name types.NamespacedName, version string) bool {
	stored, _, _ := store.GetByKey(object.Name(name))
	o, ok := stored.(object.Object)
	return ok && passed(o.GetResourceVersion(), version)
}

// All returns a copy of the errors that are not over.
func (b *Broken) All() (all map[types.NamespacedName]error) {
	b.ifAny(func() {
		all = make(map[types.NamespacedName]error, len(b.objects))
		for name, o := range b.objects {
			if !o.over {
				all[name] = o.err
			}
		}
	})
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
