// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
)

// Declarations are the handles that can be read in a context. A controller declares the handles
// that it watches and those given to its Reads. The first Reconcile that reads another handle gets
// an error, because no worker would wait for that handle to sync. A read with another context is
// not checked; setpoint-vet finds it.
//
// Package cache implements them. All methods are safe for concurrent use. Only Resolve and
// Managers make requests.
type Declarations interface {
	// Declare replaces the declared handles. who names their owner in errors. Values that are no
	// handles of package cache are left out.
	Declare(who string, handles ...any)
	// Context returns a context in which only declared handles can be read.
	Context(ctx context.Context) context.Context
	// Attach registers u with the caches of all handles that are declared, now or later, until
	// detach is called. Call detach once; a method of u may still be running then.
	Attach(u User) (detach func())
	// Behind reports which declared informer does not show a write yet. It returns nil and nil if
	// all informers that keep the object show the write, which is cheap, or if none keeps it.
	// Otherwise, wait for the lag for a limited time, and call Behind again. The error names an
	// informer that cannot decide, for example because versions are not numbers or it does not run.
	Behind(w Write) (lag Lag, unknowable error)
	// Doubles reports whether another declared informer may keep objects of the same resource as a
	// declared handle. Most controllers have one informer for each resource, so it returns false
	// at once.
	Doubles(handle any) bool
	// Event completes a change that a declared handle has delivered, for Behind. w has the object's
	// name, UID and version, and Gone. ok is false if no informer has to show the change: the
	// object has only left the handle's namespaces, names or slots, or its API server is unknown.
	//
	// Behind then ignores the informer that has delivered the change, and informers that have
	// failed since their start, which no read answers from. If a deletion may only mean that the
	// object no longer matches the handle's selectors, the others may also show the object at that
	// version. An informer that may exclude the object is a lag for a second only.
	Event(handle any, w Write) (event Write, ok bool)
	// Host returns the API server of a declared handle, or "" if it is unknown. Hosts returns how
	// many different ones are known.
	Host(handle any) string
	Hosts() int
	// Selects reports whether a scope of a resource has selectors, so that Behind needs
	// Write.Object. It considers all scopes of the declared handles' caches: another controller may
	// wait for the same write.
	Selects(r schema.GroupResource) bool
	// Relisted reports whether a declared informer that keeps the object has listed everything at
	// the written version or later, or since the API server was restored after the write. An event
	// may then combine several changes. In doubt it returns true.
	Relisted(w Write) bool
	// Missed reports whether a written object may have changed without an event: since the write, a
	// declared informer has listed everything again, without the object, which another client may
	// have deleted. It returns false for a write without a version or UID, and for adopted
	// informers.
	Missed(w Write) bool
	// Latest returns the object of a write as a declared informer has it, and the object in the
	// answer as the informer would have it. Either is nil if it is unknown, the latter also if it
	// has another type. Do not change them.
	Latest(w Write) (stored, answered object.Object)
	// Stored returns an object as the informer of a declared handle stores it, perhaps as bytes:
	// read only its metadata. It returns nil if there is none.
	Stored(handle any, at types.NamespacedName) object.Object
	// Managers asks the API server for the managed fields of a written object. It returns nil if
	// that fails.
	Managers(ctx context.Context, w Write) []metav1.ManagedFieldsEntry
	// Shown calls add with the newest version of an object that a declared informer has shown, or
	// is about to. It leaves out adopted informers, and resources with several informers.
	Shown(add func(host string, of schema.GroupResource, version string))
	// Failing returns a lag that closes when a declared informer recovers, or nil if none fails or
	// waits for its kind to be served.
	Failing() Lag
	// Recovered returns the last time at which a declared informer began to follow the API server,
	// of those that still do, or zero.
	Recovered() time.Time
	// Resolve asks the API server what became of a write whose answer was lost. It lists the
	// metadata of the objects that the write could have changed and that declared informers keep:
	// one name, or one namespace if the name is unknown. It returns the writes that those informers
	// do not show yet, for Behind. For a Batch, it lists what each informer selects that cannot
	// decide otherwise.
	//
	// err is the API server's error. Call Resolve a moment after the write has failed: the API
	// server may still be processing it. It makes one request for each place that the informers
	// keep, usually one.
	Resolve(ctx context.Context, w Write) (unseen []Write, fate Fate, err error)
}

// UndeclaredError is the error of a read of a handle that the controller does not declare. It is a
// mistake in the program.
type UndeclaredError struct{ Text string }

// Error names the controller, the handle and the remedy.
func (e *UndeclaredError) Error() string { return e.Text }

// Fate is what became of a write whose answer was lost.
type Fate uint8

const (
	// Unkept: no declared informer keeps the object, has listed, and has a Backend.
	Unkept Fate = iota
	// Open: the write may have been carried out, or may still be.
	Open
	// Decided: what the API server has now includes the write, or it can no longer be carried out.
	Decided
)

// User is a running controller, for its caches. Package controller implements it.
type User interface {
	// Relisted is called after an informer has listed everything again, perhaps before its store
	// has the list. It must not block, nor must Recovered.
	Relisted()
	// Recovered is called when an informer begins to follow the API server, also after a failure.
	Recovered()
}

// Lag is an informer that does not show a write yet, or that fails. All methods may be called from
// anywhere.
type Lag interface {
	// String returns the informer, the write, and both versions.
	fmt.Stringer
	// Failing reports whether the lag cannot close before its informer recovers.
	Failing() bool
	// Unread reports whether the informer has not synced yet, so that no read answers from it.
	Unread() bool
	// Unserved reports whether the informer shows nothing before its kind is served again.
	Unserved() bool
	// Notify wakes w when the lag has closed or cannot close any more; call Behind again then. It
	// calls Wake at most once, without locks, perhaps before Notify returns. Changes without an
	// event, such as bookmarks, do not wake w, so also call Behind from time to time. cancel ends
	// the notification; Wake may still be running then.
	//
	// The first Notify for a write adds an event handler to the informer, for as long as it is
	// declared.
	Notify(w Waker) (cancel func())
}

// Waker is what waits for the end of a Lag. Package controller implements it for keys.
type Waker interface {
	// Wake must not block.
	Wake()
}

// Signal is a Waker for one waiting goroutine. Make it with the capacity 1.
type Signal chan struct{}

// Wake sends on the channel. A second call would block.
func (s Signal) Wake() { s <- struct{}{} }
