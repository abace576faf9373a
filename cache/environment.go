// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/run"
)

type environment struct {
	backend    Backend // may be nil
	quietLimit time.Duration
	hook       *hook.Hook
	strings    sharedStrings
	users      sync.Map // from *declarations to consistency.User, see Attach
	groups     sync.Map // of *group, until it ends

	mu        sync.Mutex // guards the fields below, the states of the informers, and Cache's fields
	news      run.Barrier
	informers map[key]*informer
}

func (e *environment) all() []*informer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.informers))
}

// changed returns a channel that is closed at the next change of an informer's state, or of a
// handle's scope. To miss none, take the channel before you read the states.
func (e *environment) changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.news.When(false)
}

func (e *environment) ring() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.news.Open()
}

func (e *environment) relisted() { e.tell(consistency.User.Relisted) }

func (e *environment) recovered() { e.tell(consistency.User.Recovered) }

func (e *environment) tell(f func(consistency.User)) {
	e.users.Range(func(_, u any) bool {
		f(u.(consistency.User)) //nolint:forcetypeassert // users has no other types
		return true
	})
}

// learn tells the groups how a kind is served.
func (e *environment) learn(gvk schema.GroupVersionKind, m *meta.RESTMapping) {
	for _, g := range e.groupsOf(gvk) {
		g.learn(m)
	}
}

// groupsOf returns the groups of a kind.
func (e *environment) groupsOf(gvk schema.GroupVersionKind) (of []*group) {
	e.groups.Range(func(each, _ any) bool {
		if g := each.(*group); g.key.gvk == gvk { //nolint:forcetypeassert // groups has no other types
			of = append(of, g)
		}
		return true
	})
	return of
}

// Backend lists and watches for a cache, as a *client.Client does. It must be safe for concurrent
// use.
type Backend interface {
	// Scheme returns the Go types of the kinds.
	Scheme() *runtime.Scheme
	// MappingWithin returns how a kind is served. If it is not served, meta.IsNoMatchError is true
	// for the error, which may be cached for up to age. If the error has a method Asked()
	// time.Time, that returns when the API server was asked.
	MappingWithin(ctx context.Context, gvk schema.GroupVersionKind, age time.Duration) (*meta.RESTMapping, error)
	// Known is MappingWithin without a request. It returns nil if the mapping is unknown.
	Known(gvk schema.GroupVersionKind) *meta.RESTMapping
	// Forget drops the mapping of a kind after a 404.
	Forget(gvk schema.GroupVersionKind)
	// RESTClient returns a client for a kind, which need not be in the scheme: the cache decodes
	// the answers.
	RESTClient(gvk schema.GroupVersionKind) (rest.Interface, error)
	// Metadata returns a client for the metadata of objects.
	Metadata() (metadata.Interface, error)
}

func hostOf(b Backend) string {
	if b == nil {
		return ""
	}
	for gvk := range b.Scheme().AllKnownTypes() {
		r, err := b.RESTClient(gvk)
		if err != nil {
			continue
		}
		if u := r.Get().URL(); u != nil {
			of := "/apis/" + gvk.Group + "/" + gvk.Version
			if gvk.Group == "" {
				of = "/api/" + gvk.Version
			}
			return u.Scheme + "://" + u.Host + strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), of)
		}
	}
	return ""
}
