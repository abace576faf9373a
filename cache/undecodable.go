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
)

// undecodable is the objects that do not fit their Go type.
type undecodable struct {
	report func(object string, err error) // called off the lock
	n      atomic.Int64                   // of objects, so that nobody has to lock as long as there is none

	mu      sync.Mutex // guards objects
	objects map[types.NamespacedName]error
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
		u.objects = map[types.NamespacedName]error{}
	}
	u.objects[name] = err
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

// reset forgets all: an initial list begins.
func (u *undecodable) reset() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.objects)
	u.n.Store(0)
}

// of returns why an object cannot be decoded, or nil.
func (u *undecodable) of(name types.NamespacedName) error {
	if u.n.Load() == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.objects[name]
}

// all returns a copy.
func (u *undecodable) all() map[types.NamespacedName]error {
	if u.n.Load() == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.objects)
}

// some returns a few of them in words, in a fixed order, and how many there are.
func (u *undecodable) some() (few []string, all int) {
	for name, err := range u.all() {
		few = append(few, fmt.Sprintf("%s: %v", name, err))
	}
	slices.Sort(few)
	return few[:min(len(few), 10)], len(few)
}
