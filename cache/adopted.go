// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
)

// unknown is what the state of an informer says that was not made here.
const unknown = "; it does not say whether it can list and watch"

// foreign is an informer that was not made here. It makes a key of its own: nothing else may be shared with it.
type foreign struct {
	shared toolscache.SharedIndexInformer
	of     reflect.Type // of its objects
	ours   bool         // to run; the host program's are not
}

func (f *foreign) String() string {
	if f.ours {
		return "made by its caller"
	}
	return "adopted"
}

// misfit says that the objects in the store are of another type.
func (f *foreign) misfit() error {
	for _, name := range f.shared.GetStore().ListKeys() {
		obj, found, err := f.shared.GetStore().GetByKey(name)
		if err == nil && found {
			return misfit(f.of, obj)
		}
	}
	return nil
}

// misfit says that an object is of another type.
func misfit(t reflect.Type, obj any) error {
	if of := reflect.TypeOf(obj); of == t || t.Kind() == reflect.Interface && of.Implements(t) {
		return nil
	}
	return fmt.Errorf("the informer was given for %s, but it holds %T; name that type, or give another informer", t, obj)
}

// addIndexers adds the indexes that every informer has here, where they are missing.
func (f *foreign) addIndexers() {
	missing := builtInIndexers()
	for name := range f.shared.GetIndexer().GetIndexers() {
		delete(missing, name)
	}
	_ = f.shared.AddIndexers(missing) // it fails if it has stopped, or another cache has just added them
}

// newForeign makes a record of an informer that was not made here.
func newForeign(c *Cache, k key) *informer {
	i := &informer{key: k, cache: c, shared: k.foreign.shared, foreign: !k.foreign.ours, stopped: make(chan struct{}), phase: hook.NotStarted, since: time.Now()}
	kind := k.gvk
	if kind.Version == "" && k.foreign.of.Kind() == reflect.Pointer { // only the type says something
		kind.Kind = k.foreign.of.Elem().Name()
	}
	i.copy = consistency.Copy{
		Informer: i, Name: k.kind(), Kind: k.gvk, Foreign: true, Asked: c.hasBackend(), Guess: *consistency.UsualPlural(kind),
	}
	if i.foreign {
		i.phase = hook.Synced // when it is; see at
	}
	return i
}

// attend learns of an adopted informer what it does not say itself, until ctx is done.
func (i *informer) attend(ctx context.Context) {
	var learning sync.WaitGroup
	learning.Go(func() { i.learnMapping(ctx) })
	select {
	case <-i.synced():
		if err := i.key.foreign.misfit(); err != nil {
			i.report(hook.Failing, err)
		}
		i.cache.tellChanged()
		i.copy.Look()
		<-ctx.Done()
	case <-ctx.Done():
	}
	learning.Wait()
	i.copy.End(true)
}

// learnMapping asks how the kind is served, until there is an answer.
func (i *informer) learnMapping(ctx context.Context) {
	if !i.cache.hasBackend() {
		return
	}
	m := i.key.target(i.cache.backend).AwaitMapping(ctx)
	if m == nil {
		return
	}
	if given := i.copy.Mapping.Load(); given != nil { // its resource is a guess, its scope is not
		m = &meta.RESTMapping{Resource: m.Resource, GroupVersionKind: m.GroupVersionKind, Scope: given.Scope}
	}
	i.copy.Mapping.Store(m)
	i.cache.tellChanged()
}
