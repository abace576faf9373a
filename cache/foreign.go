// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/setpoint-dev/setpoint/hook"
)

// newForeign makes a record of an informer that was not made here.
func newForeign(e *environment, k key) *informer {
	i := &informer{key: k, env: e, shared: k.foreign.shared, foreign: !k.foreign.ours, stopped: make(chan struct{}), phase: hook.NotStarted, since: time.Now()}
	kind := k.gvk
	if kind.Version == "" && k.foreign.of.Kind() == reflect.Pointer { // only the type says something
		kind.Kind = k.foreign.of.Elem().Name()
	}
	i.copyOf(kind)
	i.copy.Foreign, i.copy.Asked = true, e.backend != nil
	i.follow = i.run
	if i.foreign {
		i.follow, i.phase = i.attend, hook.Synced // when it is; see at
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
		i.env.ring()
		i.copy.Look()
		<-ctx.Done()
	case <-ctx.Done():
	}
	learning.Wait()
	i.copy.End(true)
}

// learnMapping asks how the kind is served, until there is an answer.
func (i *informer) learnMapping(ctx context.Context) {
	if i.env.backend == nil {
		return
	}
	m := i.key.target(i.env.backend).AwaitMapping(ctx)
	if m == nil {
		return
	}
	if given := i.copy.Mapping.Load(); given != nil { // its resource is a guess, its scope is not
		m = &meta.RESTMapping{Resource: m.Resource, GroupVersionKind: m.GroupVersionKind, Scope: given.Scope}
	}
	i.copy.Mapping.Store(m)
	i.env.ring()
}
