// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// environment is what the informers of a cache have in common.
type environment struct {
	backend Backend // nil if there is none
	hooks   hook.Cache
	strings sharedStrings
	users   sync.Map // from *Declarations to *User, see Attach

	mu   sync.Mutex // guards news, the states of the informers, and what Cache says
	news run.Barrier
}

// User is what a controller wants to know of its caches, and they of it, while it runs.
type User struct {
	// Relisted is called whenever an informer has listed everything again, perhaps before its store has
	// the list. It must not block.
	Relisted func()
	// Recovered is called whenever an informer begins to follow the API server, also after a failure. It
	// must not block.
	Recovered func()
	// Reconciles reports whether a Reconcile runs on the goroutine whose stack this is, as
	// runtime.Stack has it, or has started that goroutine, and of which key.
	Reconciles func(stack string) (key string, ok bool)
}

// changed returns a channel that is closed when the state of an informer changes next, or the scope of
// a handle. Take it, look at what may have changed, then wait for it.
func (e *environment) changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.news.When(false)
}

// ring wakes those that wait for a change.
func (e *environment) ring() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.news.Open()
}

// relisted tells the controllers that an informer has listed everything, perhaps before its store has it.
func (e *environment) relisted() { e.tell(func(u *User) { u.Relisted() }) }

// recovered tells the controllers that an informer follows the API server, perhaps again.
func (e *environment) recovered() { e.tell(func(u *User) { u.Recovered() }) }

func (e *environment) tell(f func(*User)) {
	e.users.Range(func(_, u any) bool {
		f(u.(*User)) //nolint:forcetypeassert // it has nothing else
		return true
	})
}

// Backend is what a cache lists and watches with. A *client.Client is one.
type Backend interface {
	// Scheme knows the Go types of the kinds.
	Scheme() *runtime.Scheme
	// MappingWithin returns how a kind is served. For a kind that is not served it returns an error for
	// which meta.IsNoMatchError is true. An error may be as old as age; its method Asked() time.Time, if
	// it has one, returns how old it is.
	MappingWithin(ctx context.Context, gvk schema.GroupVersionKind, age time.Duration) (*meta.RESTMapping, error)
	// Known is MappingWithin without a request. It returns nil if the mapping is not known.
	Known(gvk schema.GroupVersionKind) *meta.RESTMapping
	// Forget drops the mapping of a kind: the API server answered 404.
	Forget(gvk schema.GroupVersionKind)
	// RESTClient returns a client for requests about a kind that the scheme knows.
	RESTClient(gvk schema.GroupVersionKind) (rest.Interface, error)
	// Dynamic returns a client for unstructured objects.
	Dynamic() (dynamic.Interface, error)
	// Metadata returns a client for the metadata of objects.
	Metadata() (metadata.Interface, error)
}

// hostOf returns scheme://host of the API server, or "" if it is not known.
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
