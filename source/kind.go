// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/rbac"
	"github.com/setpoint-dev/setpoint/why"
)

// Kind delivers the handle's objects: first each existing one, then each change. An event goes to
// the handler if all predicates keep it. At the handle's resync interval, if any, each object comes
// as an update without a change. Release the handle only after the source has stopped.
func Kind[T cache.Object, K comparable](objects *cache.Handle[T], h handler.Handler[K], predicates ...handler.Predicate) Source[K] {
	name := reflect.TypeFor[T]().String()
	if objects != nil {
		name = objects.String()
	}
	k := &kind[K]{feed: newFeed[T]("Kind("+name+")", h, predicates)}
	k.status.own = k
	if objects != nil {
		k.objects, k.handle, k.all = objects, objects, listOf(objects)
		k.subscribe = func(events toolscache.ResourceEventHandler) (subscription, error) {
			s, err := objects.Subscribe(events)
			if err != nil {
				return nil, err // not a subscription that is a nil pointer
			}
			return s, nil
		}
	}
	return k
}

// kind has no parameter for the type of its objects, so that a package compiles it once and not
// for each type that it watches.
type kind[K comparable] struct {
	*feed[K]

	// The handle, or nil.
	objects   objects
	handle    cache.Declared
	subscribe func(toolscache.ResourceEventHandler) (subscription, error)
	all       list
}

// objects is a cache.Handle of any type. It names no type of package cache: this package would then
// compile the generic types behind it.
type objects interface {
	Validate() error
	Settled(ctx context.Context) error
	WaitForSome(ctx context.Context) error
	Stale() error
	State() hook.InformerState
	Resync() time.Duration
	GroupVersionKind() schema.GroupVersionKind
	Explain(name types.NamespacedName) (stored any, answers []why.Answer)
	Compare(ctx context.Context, name types.NamespacedName) []why.Answer
	Needs() []rbac.Need
}

func (k *kind[K]) Validate() error {
	if k.objects == nil || k.handler == nil {
		return errors.New("source.Kind: give a handle and a handler")
	}
	return errors.Join(k.objects.Validate(), k.validate())
}

// Needs returns the rights of the handler, where the handle's informers read.
func (k *kind[K]) Needs() (all []rbac.Need) {
	of, ok := k.handler.(rbac.Needer)
	if !ok || k.objects == nil || argument.IsNil(k.handler) {
		return nil
	}
	for _, at := range k.objects.Needs() {
		for _, n := range of.Needs() {
			n.Cluster, n.Namespace = at.Cluster, at.Namespace
			all = append(all, n)
		}
	}
	return all
}

func (k *kind[K]) Handle() cache.Declared { return k.handle }

func (k *kind[K]) Run(ctx context.Context, to Sink[K]) error {
	return k.run(ctx, to, k.subscribe, func(ctx context.Context) { k.redeliver(ctx, k.all, k.objects.Resync()) })
}

func (k *kind[K]) settle(ctx context.Context) error { return k.enough(ctx, k.objects.Settled) }

func (k *kind[K]) enough(ctx context.Context, enough func(context.Context) error) error {
	if err := enough(ctx); err != nil {
		return err
	}
	if k.objects.Stale() != nil {
		return nil
	}
	return k.status.WaitForSync(ctx) // the handler is about to see the store's objects
}

// WaitForSome is Status().WaitForSync, but some namespaces or names of the handle may fail. A
// controller calls it.
func (k *kind[K]) WaitForSome(ctx context.Context) error {
	return k.enough(ctx, k.objects.WaitForSome)
}

func (k *kind[K]) stale() error {
	if err := k.objects.Stale(); err != nil {
		return err
	}
	return k.feed.stale()
}

func (k *kind[K]) state() State {
	informers := k.objects.State()
	s := State{Source: k.name, Phase: informers.Phase, Err: informers.Err}
	if s.Phase == hook.Synced && !run.Closed(k.status.synced) {
		s.Phase = hook.Syncing
	}
	if n := len(informers.Broken); n > 0 {
		s.Note = fmt.Sprintf("broken objects: %d, such as %s", informers.BrokenCount, informers.Broken[0])
	}
	s.Pending, s.Retrying, s.Failure = k.retries.state()
	if run.Closed(k.began) {
		s.Pending += k.events.Waiting()
	}
	s.Dropped = k.drops.snapshot()
	return s
}

// Replay delivers every object again as a Create with Initial set and in class Background, as the
// initial list does. It returns nil when predicates and handler have seen these events; failed ones
// are retried. Objects of a source that is not synced come with its initial list. The source's
// handlers and predicates must not call it.
func (k *kind[K]) Replay(ctx context.Context) error { return k.replay(ctx, k.settle, keepAll) }

// ReplayKeys is Replay for the keys that wanted accepts. A controller calls it.
func (k *kind[K]) ReplayKeys(ctx context.Context, wanted func(K) bool) error {
	only := func(key any) bool { return wanted(key.(K)) } //nolint:forcetypeassert // see keep
	return k.replay(ctx, k.settle, only)
}

type request struct {
	wanted keep
	done   chan error
}

func (f *feed[K]) replay(ctx context.Context, settled func(context.Context) error, wanted keep) error {
	if run.Closed(f.status.ended) {
		return errStopped
	}
	if err := settled(ctx); err != nil || !run.Closed(f.status.synced) {
		return err
	}
	done := make(chan error, 1)
	select {
	case f.asked <- request{wanted, done}:
	case <-f.status.ended:
		return errStopped
	case <-ctx.Done():
		return fmt.Errorf("replay: %w", context.Cause(ctx))
	}
	select {
	case err := <-done:
		return err
	case <-f.status.ended:
		return errStopped
	case <-ctx.Done():
		return fmt.Errorf("replay: not all objects are delivered: %w", context.Cause(ctx))
	}
}

// redeliver delivers every object again for each Replay and, unless every is 0, at that interval
// with a jitter of 10 %.
func (f *feed[K]) redeliver(ctx context.Context, all list, every time.Duration) {
	var due <-chan time.Time
	next := func() {
		if every > 0 {
			due = time.After(jittered(every))
		}
	}
	next()
	for {
		select {
		case <-due:
			if err := all(ctx, f.retries, nil); err != nil {
				f.report("", fmt.Errorf("resync: %w", err)) // the next one may succeed
			}
			next()
		case r := <-f.asked:
			r.done <- all(ctx, f.retries, r.wanted)
		case <-ctx.Done():
			return
		}
	}
}

// list delivers all objects of a handle to r, with replay set unless it is a resync.
type list func(ctx context.Context, r *retries, replay keep) error

func listOf[T cache.Object](objects *cache.Handle[T]) list {
	return func(ctx context.Context, r *retries, replay keep) error {
		over, cancel := context.WithCancel(ctx)
		cancel() // so that Get does not wait
		for obj, err := range objects.Shared().All(ctx, cache.ListOptions{}) {
			if _, undecodable := errors.AsType[*cache.UndecodableError](err); undecodable {
				return nil // State names them, and the handler gets their events as far as it can
			}
			if err != nil || ctx.Err() != nil {
				return err
			}
			e := pendingEvent{Event: handler.Event{Op: handler.Update, Old: obj, New: obj}, replay: replay}
			r.deliver(ctx, e, func() handler.Object {
				now, err := objects.Shared().Get(over, types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()})
				if err != nil {
					return nil // it is gone
				}
				return now
			})
		}
		return nil
	}
}
