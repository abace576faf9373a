// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// CatchUp lists again after lookAgain, and then after twice the pause before, up to longestLook.
const (
	lookAgain   = time.Second
	longestLook = time.Minute
)

// CatchUp returns nil once the cache shows everything that the API server had in the handle's scope
// at the call: each object at that version or later, and no object that was already deleted. A kind
// that is not served has no objects. If ctx ends before, the error names what is missing. CatchUp
// lists the metadata of all objects in the scope, so it is for tests and scripts.
func (h *Handle[T]) CatchUp(ctx context.Context) error { return h.handle.catchUp(ctx) }

func (h *handle) catchUp(ctx context.Context) error {
	s, err := h.subscribe(toolscache.ResourceEventHandlerFuncs{})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.CatchUp(ctx)
}

// CatchUp is like Handle.CatchUp, and also waits until the handler has returned from the events of
// these objects. Objects that were created and deleted unseen cause no event. For an adopted
// informer, the first call does not wait for events that were already queued for the handler.
func (s *Subscription) CatchUp(ctx context.Context) error {
	if err := s.awaitLeft(ctx); err != nil {
		return err
	}
	now := s.now()
	results := make(chan error, len(now))
	var all sync.WaitGroup
	for i, r := range now {
		all.Go(func() { results <- s.catchUp(ctx, i, r) })
	}
	all.Wait()
	close(results)
	var wrong []error
	for err := range results {
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

func (s *Subscription) awaitLeft(ctx context.Context) error {
	for {
		changed := s.group.cache.changed()
		i := s.leavingOne()
		if i == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the handler has not seen yet that %s has left the scope: %w", i, context.Cause(ctx))
		}
	}
}

// catchUp is CatchUp for one informer. It lists again from time to time: an object may have been
// deleted, and a bookmark causes no event.
func (s *Subscription) catchUp(ctx context.Context, i *informer, r *registration) error {
	var marks [2]string // the second is sent after the handler saw the first
	for n := range marks {
		marks[n] = "/" + strconv.FormatInt(s.group.cache.serial.Add(1), 10)
		r.expect(marks[n])
		defer r.OnMark(marks[n])
	}
	for pause := lookAgain; ; pause = min(2*pause, longestLook) {
		recorded := i.lw != nil || r.record()
		restoring := i.isRestoring()
		unseen, served, odd, err := i.compare(ctx)
		if err != nil || !served {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, pause)
		missing := odd
		if odd != "" {
			s.awaitRestoring(limited, i, !restoring)
		} else {
			missing = s.unseen(limited, i, r, unseen)
		}
		switch {
		case missing != "":
		case !recorded:
			missing = i.String() + " is not synced"
			await(limited, r.HasSyncedChecker().Done())
		// The first mark may overtake events that arrived with the last compared one. The stream
		// has read them before the handler sees the first mark, so the second mark follows them.
		case !s.handled(limited, i, r, marks[0]) || !s.handled(limited, i, r, marks[1]):
			missing = i.String() + " has events that its handler has not seen yet"
		}
		cancel()
		switch {
		case missing == "":
			return nil
		case run.Closed(i.stopped):
			return fmt.Errorf("%s; it has stopped", missing)
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", missing, context.Cause(ctx))
		}
	}
}

func await(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// compare returns, as writes, what the API server has and the store does not show. It cannot if the
// API server was restored since the store's list, which odd describes.
func (i *informer) compare(ctx context.Context) (unseen []consistency.Write, served bool, odd string, err error) {
	if i.env.backend == nil || i.key.gvk.Version == "" || !i.key.foreign.hasStore() {
		return nil, false, "", fmt.Errorf("%s cannot be compared with what the API server has; use cache.For, or cache.Adopt "+
			"with a SharedIndexInformer, its Kind, and a cache with a client", i)
	}
	known := i.newest()
	list, mapping, err := i.key.target(i.env.backend).AwaitMetadata(ctx)
	if err != nil {
		return nil, false, "", fmt.Errorf("cannot list %s at the API server: %w", i, err)
	}
	if mapping == nil {
		return nil, false, "", nil
	}
	switch {
	case i.isRestoring():
		return nil, true, i.state().String(), nil
	case object.Before(list.ResourceVersion, known):
		i.lw.Doubt()
		return nil, true, fmt.Sprintf("%s is at version %s, and the API server is at version %s now, which is earlier", i, known, list.ResourceVersion), nil
	}
	return i.view.Compare(list, i.key.place, &consistency.Write{Resource: mapping.Resource.GroupResource()}), true, "", nil
}

// isRestoring reports whether the API server is known to be restored since the store's list.
func (i *informer) isRestoring() bool { return i.restoring.Load() != nil || i.hasOutlived() }

// awaitRestoring waits until isRestoring returns this.
func (s *Subscription) awaitRestoring(ctx context.Context, i *informer, this bool) {
	for ctx.Err() == nil {
		changed := s.group.cache.changed()
		if i.isRestoring() == this || run.Closed(i.stopped) {
			return
		}
		await(ctx, changed)
	}
}

// newest returns the newest version that the API server has shown. It is empty if that is unknown.
func (i *informer) newest() string {
	if i.lw == nil {
		return ""
	}
	return strconv.FormatUint(i.lw.Newest(), 10)
}

// unseen waits until the store shows all writes, or describes the first missing one when ctx ends.
func (s *Subscription) unseen(ctx context.Context, i *informer, r *registration, writes []consistency.Write) string {
	for _, w := range writes {
		missing := &lag{group: s.group, informer: i, written: w}
		if !s.shown(ctx, missing, r) {
			return missing.String()
		}
	}
	return ""
}

func (s *Subscription) shown(ctx context.Context, missing *lag, r *registration) bool {
	i := missing.informer
	for {
		changed := s.group.cache.changed()
		v, _ := i.view.Shows(&missing.written)
		if v == consistency.Shown || s.at(i) != r { // the informer has left the scope
			return true
		}
		var closed consistency.Signal // an unclear write waits only for the informer's state
		cancel := func() {}
		if v == consistency.Behind {
			closed = make(consistency.Signal, 1)
			cancel = missing.Notify(closed)
		}
		select {
		case <-closed:
		case <-changed:
		case <-i.stopped:
		case <-ctx.Done():
		}
		cancel()
		if run.Closed(i.stopped) || ctx.Err() != nil {
			return false
		}
	}
}

func (s *Subscription) handled(ctx context.Context, i *informer, r *registration, mark string) bool {
	if i.lw != nil && !i.lw.Mark(ctx, i.mark(mark)) {
		return false
	}
	for {
		changed := s.group.cache.changed()
		if s.at(i) != r || i.lw != nil && r.passed(mark) || i.lw == nil && r.told() {
			return true
		}
		select {
		case <-changed:
		case <-i.stopped:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
