// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/listwatch"
)

// lookAgain is the first pause before another look at what comes without an event, such as the
// version of a bookmark.
const lookAgain = time.Second

// CatchUp returns nil once the local copy shows what the API server has of the handle's scope at the call, or what came after it:
// each object at its version then or a later one, and none that was gone. A kind that is not served has nothing to show. It is for
// tests and scripts: it lists the metadata of all that is in the scope, at the API server. If ctx ends before, the error names what
// is not shown.
func (h *Handle[T]) CatchUp(ctx context.Context) error {
	s, err := h.Subscribe(toolscache.ResourceEventHandlerFuncs{})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.CatchUp(ctx)
}

// CatchUp is that of Handle, for what the subscription's handler has been told of: its calls have returned. What was created and
// deleted again before the informer saw anything of it need not have come.
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

// awaitLeft waits until the handler has heard of what was in the places that have left the scope.
func (s *Subscription) awaitLeft(ctx context.Context) error {
	for {
		changed := s.group.cache.changed.wait()
		i := s.leavingOne()
		if i == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the handler has not been told yet that %s has left the scope: %w", i, context.Cause(ctx))
		}
	}
}

func (s *Subscription) leavingOne() *informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.leaving {
		return i
	}
	return nil
}

// catchUp waits until the handler has been told of all that the API server has for one informer. It lists again from time to
// time: what was listed may be gone since, and some of what reaches the store, such as the version of a bookmark, makes no event.
func (s *Subscription) catchUp(ctx context.Context, i *informer, r *registration) error {
	for pause := lookAgain; ; pause *= 2 {
		l, err := i.listNow(ctx)
		if err != nil || l == nil {
			return err
		}
		again := time.NewTimer(pause)
		done, err := s.catchUpWith(ctx, l, i, r, again.C)
		again.Stop()
		if done || err != nil {
			return err
		}
	}
}

// catchUpWith waits until the handler has been told of all that is listed, and of all that the informer was given,
// or until it is time to list again.
func (s *Subscription) catchUpWith(ctx context.Context, l *listing, i *informer, r *registration, again <-chan time.Time) (done bool, err error) {
	for {
		next, changed := r.told.changed.wait(), s.group.cache.changed.wait()
		missing, err := l.missing(i), error(nil)
		if missing == "" {
			missing, err = i.untold(r.told)
		}
		if missing == "" || s.at(i) != r { // it has left the scope
			return true, nil
		}
		if err != nil {
			return false, err
		}
		select {
		case <-next:
		case <-changed:
		case <-again:
			return false, nil
		case <-i.stopped:
			return false, fmt.Errorf("%s does not show %s, and never will: it has stopped", i, missing)
		case <-ctx.Done():
			return false, fmt.Errorf("%s: %w", i.lags(missing), context.Cause(ctx))
		}
	}
}

// untold names an event that an event handler was not told of, and that the store shows or that the informer was given. It is ""
// if there is none, and the error reports why that is not known.
func (i *informer) untold(h *handled) (missing string, err error) {
	given, objects := i.given(), i.shared.GetStore().List()
	told, since := h.now()
	if told.unordered {
		return "its last events", fmt.Errorf("%s: whether its handler was told of all changes is not known: the version of a delete is not a number", i)
	}
	covered, next := told.covers(h.seed, objects), ""
	if !covered {
		next = told.next(h.seed, objects)
	}
	switch {
	case next != "":
		return next, nil
	case !max(told.newest, since).reaches(given):
		return fmt.Sprintf("the event at %d", given), nil
	case !covered:
		return "its last events", nil
	default:
		return "", nil
	}
}

// given returns the version of the last event that the informer was given since it last listed everything, or 0.
func (i *informer) given() version {
	if i.lw == nil {
		return 0
	}
	return version(i.lw.Given())
}

// lags says in words what is not shown, and why.
func (i *informer) lags(missing string) string {
	text := fmt.Sprintf("%s does not show %s, or its handler was not told yet", i, missing)
	if phase, _, why := i.at(); why != nil {
		return fmt.Sprintf("%s; it is %s: %v", text, phase, why)
	}
	if at := i.shared.GetStore().LastStoreSyncResourceVersion(); at != "" {
		text += "; it is at version " + at
	}
	return text
}

// listing is what the API server has for an informer at one moment.
type listing struct {
	at      version
	objects []listed            // that are not known to be in the store
	ids     map[uint64]struct{} // of all that there is
}

type listed struct {
	version version
	name    types.NamespacedName
}

// missing names an object that was listed and is not in the store, or the other way around. It returns "" if there is none.
func (l *listing) missing(i *informer) string {
	for ; len(l.objects) > 0; l.objects = l.objects[1:] {
		if o := &l.objects[0]; !i.has(o) {
			return fmt.Sprintf("%s at %d", storeKey(o.name), o.version)
		}
	}
	for _, obj := range i.shared.GetStore().List() {
		if o, ok := obj.(identified); ok && l.lacks(identity(i.env.seed, o), versionOf(i.env.seed, o.GetResourceVersion())) {
			return "that " + storeKey(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}) + " is gone"
		}
	}
	return ""
}

// lacks says whether an object was gone when the list was made.
func (l *listing) lacks(id uint64, v version) bool {
	_, there := l.ids[id]
	return !there && (l.at >= unordered || l.at.reaches(v))
}

// has reports whether the store has an object at the listed version or a later one, or will not have it: a store that is at that
// version lacks what is gone again, and what an adopted informer does not list.
func (i *informer) has(o *listed) bool {
	at := i.shared.GetStore().LastStoreSyncResourceVersion()
	if versionOf(i.env.seed, at).reaches(o.version) {
		return true
	}
	if at == "" && i.Undecodable(o.name) != nil {
		return true
	}
	stored := i.copy.Stored(&Written{Namespace: o.name.Namespace, Name: o.name.Name})
	return stored != nil && versionOf(i.env.seed, stored.GetResourceVersion()).reaches(o.version)
}

// listNow asks the API server what it has for the informer, again and again until it answers. It
// returns nil if the kind is not served.
func (i *informer) listNow(ctx context.Context) (*listing, error) {
	if !i.env.hasBackend() || i.key.gvk.Version == "" {
		return nil, fmt.Errorf("%s cannot be compared with what the API server has: give the informer to cache.Adopt, with its kind, in a cache that "+
			"has a client, or use cache.For", i)
	}
	list, served, err := i.key.target(i.env.backend).AwaitMetadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("what the API server has of %s is not known: %w", i, err)
	}
	if !served {
		return nil, nil //nolint:nilnil // as it says
	}
	seed := i.env.seed
	l := &listing{at: versionOf(seed, list.ResourceVersion), ids: map[uint64]struct{}{}}
	for n := range list.Items {
		found := &list.Items[n]
		l.ids[identity(seed, found)] = struct{}{}
		l.objects = append(l.objects, listed{versionOf(seed, found.ResourceVersion), listwatch.NameOf(found)})
	}
	return l, nil
}
