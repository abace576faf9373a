// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

// ErrNotSynced is wrapped by the error of a read whose initial list has failed, or is not there
// when the read's context ends. It does not depend on the object: try again.
var ErrNotSynced = errors.New("not synced")

type informer struct {
	key     key
	env     *environment
	shared  *shared
	lw      *listwatch.ListerWatcher // nil if this package did not make the informer
	example Object                   // nil like lw
	intake  intake                   // unused like lw
	foreign bool                     // the host program starts and stops it
	view    consistency.View         // Mapping is set before it is synced
	follow  func(context.Context)    // run or attend, until its context is done
	stopped chan struct{}            // closed by run
	listed  atomic.Bool              // caches HasSynced
	fixed   atomic.Bool              // wanted whether or not the kind is namespaced
	walked  sizes

	indexing sync.Mutex // guards writes of indexed
	indexed  atomic.Pointer[[]*indexFunc]

	restoring atomic.Pointer[restoring] // or nil
	outlived  atomic.Pointer[string]    // an adopted informer's version at a restore
	troubled  atomic.Bool               // the last InformerState was of trouble

	// The environment's mutex guards the fields below.
	refs   int
	cancel context.CancelFunc // nil before it runs
	phase  hook.Phase
	err    error
	since  time.Time
}

func newInformer(e *environment, k key, s Scope, example Object) *informer {
	i := &informer{key: k, env: e, example: example, stopped: make(chan struct{}), phase: hook.NotStarted, since: time.Now()}
	i.intake.key, i.intake.strings, i.intake.store = k, &e.strings, i.Store
	target, codec := k.target(e.backend), i.intake.codec(example)
	target.Codec, target.Part, target.QuietLimit = codec, i.newPart(), e.quietLimit
	i.lw = listwatch.New(target, i)
	i.shared = &shared{SharedIndexInformer: toolscache.NewSharedIndexInformerWithOptions(i.lw.ListWatch(), codec.Example(), toolscache.SharedIndexInformerOptions{
		ResyncPeriod:      resyncCheck,
		Indexers:          builtInIndexers(),
		ObjectDescription: k.gvk.String(),
	})}
	i.makeView()
	i.view.Place, i.view.Labels, i.view.Fields, i.view.Asked = k.place, s.Labels, s.Fields, true
	i.lw.Broken.Reporter, i.intake.untransformed.Reporter, i.intake.unreadable.Reporter = i, i, i
	i.follow = i.run
	// These cannot fail before the start.
	_ = i.shared.SetWatchErrorHandlerWithContext(logUnlessStopped)
	i.followSlots()
	return i
}

func (i *informer) makeView() {
	i.view.Informer, i.view.Shared, i.view.Slots = i, i.shared, i.key.slots != nil
	i.view.Name, i.view.Kind, i.view.Guess = i.key.kind(), i.key.gvk, *consistency.UsualPlural(i.key.gvk)
}

func (i *informer) run(ctx context.Context) {
	i.set(hook.Syncing, nil)
	var noticing sync.WaitGroup
	noticing.Go(func() { i.noticeSync(ctx) })
	i.shared.RunWithContext(ctx)
	<-ctx.Done() // RunWithContext returns at once if the informer was started elsewhere
	i.shared.join()
	noticing.Wait()
	if i.lw != nil {
		i.lw.Join()
	}
	i.set(hook.Stopped, nil)
	i.view.End(false) // its callbacks are joined
	close(i.stopped)
	i.env.ring()
}

func (i *informer) state() hook.InformerState {
	s := hook.InformerState{Kind: i.key.kind(), Scope: i.key.String(), Selection: i.key.selection()}
	s.Phase, s.Since, s.Err = i.at()
	s.ResourceVersion = i.shared.GetStore().LastStoreSyncResourceVersion()
	if i.lw == nil {
		s.Scope += unknown
		return s
	}
	counts := i.lw.Counts()
	s.Lists, s.Watches, s.Quiet = counts.Lists, counts.Watches, counts.Quiet
	for _, broken := range [...]*listwatch.Broken{&i.lw.Broken, &i.intake.untransformed, &i.intake.unreadable} {
		few, all := broken.Some()
		s.Broken, s.BrokenCount = append(s.Broken, few...), s.BrokenCount+all
	}
	s.Storage, s.Slots, s.Decodes = i.key.storage.String(), i.slotState(), i.lw.Codec().Decodes()
	return s
}

// Standing describes the state for errors.
func (i *informer) Standing() string { return i.state().String() }

func (i *informer) String() string {
	if words := i.key.String(); words != "" {
		return i.key.kind() + " (" + words + ")"
	}
	return i.key.kind()
}

// Broken is called for each new error of an object.
func (i *informer) Broken(object string, err error) {
	i.env.hook.Send(&hook.BrokenObject{Kind: i.key.kind(), Object: object, Err: err})
}

// Store is also for the informer's ListerWatcher.
func (i *informer) Store() toolscache.Store { return i.shared.GetStore() }

// indexer returns the objects as they are stored, also of another cache's informer.
func (i *informer) indexer() toolscache.Indexer { return storedIndexer(i.shared) }

func (i *informer) synced() <-chan struct{} { return i.shared.HasSyncedChecker().Done() }

// HasSynced is called by each read. Unlike synced, it makes no channel.
func (i *informer) HasSynced() bool {
	if i.listed.Load() { // an informer never becomes unsynced
		return true
	}
	synced := i.shared.HasSynced()
	if synced {
		i.listed.Store(true)
	}
	return synced
}

func (i *informer) Undecodable(name types.NamespacedName) error {
	if i.lw == nil {
		return nil
	}
	return i.lw.Broken.Of(name, i.Store())
}

func (i *informer) Phase() hook.Phase {
	phase, _, _ := i.at()
	return phase
}

func (i *informer) settled() bool {
	return i.hasWanted() || i.fails()
}

func (i *informer) relisted(version string) bool {
	if i.lw == nil {
		return true
	}
	at, ok := i.lw.Listed()
	return !ok || !object.Before(at, version)
}

func (i *informer) fails() bool {
	phase := i.Phase()
	return phase == hook.Failing || phase == hook.Waiting
}

func (i *informer) listMetadata(ctx context.Context, at place) (*metav1.PartialObjectMetadataList, error) {
	k := key{gvk: i.key.gvk, form: listwatch.Metadata, place: at}
	return k.target(i.env.backend).ListMetadata(ctx, i.view.Mapping.Load(), 0)
}

// byOwner is the index of the UIDs of all owner references. Every informer has it.
const byOwner = "setpoint.dev/owner"

// unknowable is the index value of objects that may have any, because they cannot be decoded.
const unknowable = "setpoint.dev/cannot be decoded"

func builtInIndexers() toolscache.Indexers {
	return toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
		byOwner: func(obj any) ([]string, error) {
			o, ok := obj.(Object)
			if !ok {
				return nil, nil
			}
			owners, ok := storage.OwnerUIDs(o)
			if !ok {
				owners = []string{unknowable}
			}
			return owners, nil
		},
	}
}

// readable waits for the initial list, until that fails or ctx ends.
func (i *informer) readable(ctx context.Context) error {
	for !i.HasSynced() {
		changed := i.env.changed()
		switch i.Phase() {
		case hook.Waiting, hook.Failing:
			return fmt.Errorf("%w: %w", ErrNotSynced, reason(i.state()))
		case hook.Stopped:
			return fmt.Errorf("%w, and never will be: %w", ErrNotSynced, reason(i.state()))
		}
		select {
		case <-changed:
		case <-i.synced():
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: %w", ErrNotSynced, reason(i.state()), context.Cause(ctx))
		}
	}
	return nil
}

// fits checks a namespace against the kind's scope. one is for a read of one object.
func (i *informer) fits(namespace string, one bool) error {
	m := i.view.Mapping.Load()
	if m == nil { // a foreign informer
		return nil
	}
	switch namespaced := isNamespaced(m); {
	case namespaced && namespace == "" && one:
		return fmt.Errorf("%s is a namespaced kind: name the namespace", i.key.gvk.Kind)
	case !namespaced && namespace != "":
		return fmt.Errorf("%s is a cluster-scoped kind: leave the namespace empty, not %q", i.key.gvk.Kind, namespace)
	}
	return nil
}

const unknown = "; does not report failures"

// Prepare returns what is stored instead of an object from the API server.
func (i *informer) Prepare(o Object) Object {
	if _, mark := markOf(o); mark {
		return o
	}
	i.learnScope(o)
	i.view.Came(o.GetResourceVersion())
	o = i.intake.prepare(o)
	if r, ok := o.(storage.Record); ok {
		i.prepareIndexes(r) // here, the store is not locked
	}
	return o
}

// Mapped records how the kind is served. It returns false if the informer is no longer wanted: its
// groups inherited their namespaces, and now have other informers.
func (i *informer) Mapped(m *meta.RESTMapping) (wanted bool) {
	last := i.view.Mapping.Swap(m)
	wanted = i.fixed.Load() || isNamespaced(m) == (i.key.place.Namespace != "")
	if last == nil || isNamespaced(last) != isNamespaced(m) || !wanted {
		i.env.learn(i.key.gvk, m)
	}
	return wanted
}

func isNamespaced(m *meta.RESTMapping) bool { return m.Scope.Name() == meta.RESTScopeNameNamespace }

// learnScope corrects the mapping: while the watch goes on, a CRD may return with another scope.
func (i *informer) learnScope(o Object) {
	m := i.view.Mapping.Load()
	if m == nil || isNamespaced(m) == (o.GetNamespace() != "") {
		return
	}
	other := *m
	if other.Scope = meta.RESTScopeRoot; o.GetNamespace() != "" {
		other.Scope = meta.RESTScopeNamespace
	}
	i.view.Mapping.Store(&other)
	i.env.backend.Forget(i.key.gvk)
}
