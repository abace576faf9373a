// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// WatchEvent is a change that [Handle.WatchLive] reports.
type WatchEvent[T Object] struct {
	// Type is watch.Added, watch.Modified, watch.Deleted or watch.Bookmark.
	Type watch.EventType
	// Object is the object after the change, or its last state. You own it. A Bookmark has only a
	// resourceVersion.
	Object T
}

// WatchLive lists the selected objects and then watches them, without a cache. It is for tests, and
// for programs that wait for something. A controller uses package cache: each WatchLive is a
// connection.
//
// It yields each object as Added, then one Bookmark, then the changes in their order. No change is
// missing and none comes twice. It starts no goroutine that outlives the loop.
//
// The loop goes on until you break it, or ends with an error. If the connection breaks, or the API
// server ends a watch (every 30 to 60 minutes), WatchLive resumes after the last change that it
// yielded. It opens at most one watch per second. The error is
//
//   - context.Cause(ctx), when ctx ends.
//   - IsResourceExpired, if the API server no longer has the changes since the last one. Begin
//     again; objects may have been deleted meanwhile.
//   - any other error of a request, for example IsForbidden. Failed requests are not repeated.
func (h *Handle[T]) WatchLive(ctx context.Context, o ListOptions) iter.Seq2[WatchEvent[T], error] {
	return func(yield func(WatchEvent[T], error) bool) {
		err := h.watch(ctx, o, func(event watch.EventType, obj T) bool { return yield(WatchEvent[T]{event, obj}, nil) })
		switch {
		case errors.Is(err, errEnough):
		case ctx.Err() != nil:
			yield(WatchEvent[T]{}, context.Cause(ctx))
		default:
			yield(WatchEvent[T]{}, err)
		}
	}
}

const betweenWatches = time.Second

func (h *Handle[T]) watch(ctx context.Context, o ListOptions, do func(watch.EventType, T) bool) error {
	version := "" // of the last event
	if err := h.target.eachPage(ctx, listing, o, nil, func(page runtime.Object) error {
		list, err := meta.ListAccessor(page)
		if err != nil {
			return err
		}
		if version == "" { // the first page: a later one may be newer
			version = list.GetResourceVersion()
		}
		return h.eachItem(page, func(obj T) bool { return do(watch.Added, obj) })
	}); err != nil {
		return err
	}
	listed := newObject[T]()
	listed.SetResourceVersion(version)
	if !do(watch.Bookmark, listed) {
		return errEnough
	}
	for {
		from, begun, next := version, time.Now(), time.After(betweenWatches)
		err := h.stream(ctx, o, &version, do)
		// What cannot be decoded comes again at once.
		if broken(err) && (version != from || time.Since(begun) >= betweenWatches) {
			err = nil
		}
		if err != nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func broken(err error) bool { return apierrors.HasStatusCause(err, "ClientWatchDecoding") }

// stream is one watch request. It returns nil when the API server or the network ends it.
func (h *Handle[T]) stream(ctx context.Context, o ListOptions, version *string, do func(watch.EventType, T) bool) error {
	request := o.request()
	request.Limit, request.Watch, request.AllowWatchBookmarks, request.ResourceVersion = 0, true, true, *version
	key := types.NamespacedName{Namespace: o.Namespace}
	r, err := h.target.request(ctx, watching, key, &request, nil)
	if err != nil {
		return err
	}
	w, err := r.Watch(ctx)
	if err != nil {
		return h.target.explain(ctx, watching, key, err)
	}
	defer func() {
		w.Stop()
		for range w.ResultChan() { // until its goroutine has ended
		}
	}()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return fmt.Errorf("watch %s: %w", h.target.gvk.Kind, apierrors.FromObject(event.Object))
		}
		obj, err := h.watched(event.Object)
		if err != nil {
			return err
		}
		*version = obj.GetResourceVersion()
		if event.Type != watch.Bookmark && !do(event.Type, obj) {
			return errEnough
		}
	}
	return nil
}

// watched returns the object of an event. client-go decodes metadata as an unstructured object.
func (h *Handle[T]) watched(from runtime.Object) (T, error) {
	if obj, ok := from.(T); ok {
		return obj, nil
	}
	obj := newObject[T]()
	u, ok := from.(*unstructured.Unstructured)
	if !ok || h.target.form != inMetadata {
		return obj, fmt.Errorf("watch %s: an event has a %T, not a %T", h.target.gvk.Kind, from, obj)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return obj, fmt.Errorf("watch %s: %w", h.target.gvk.Kind, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(h.target.gvk)
	return obj, nil
}
