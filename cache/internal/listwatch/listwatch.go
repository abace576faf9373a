// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package listwatch lists and watches one kind for client-go's reflector.
//
// A ListerWatcher repeats a failed request until it succeeds or its context ends: the reflector's
// own backoff would sleep for up to 30 seconds through a stop. It also resumes broken watches,
// waits for kinds that are not served, and reads objects one by one.
//
// A listReader reads the answer of a list, and events reads the answer of a watch. A decoder reads
// single objects, with the Codec of the form in which they are stored. A stream follows the
// versions of the events, and opens a watch again when it breaks. A slotFilter drops objects of
// slots that are not kept. An outlet gives the rest to client-go's reflector, which stores it.
package listwatch

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

// ListerWatcher lists and watches a Target. It is safe for concurrent use.
type ListerWatcher struct {
	// Broken has the objects that cannot be decoded.
	Broken Broken
	// Progress is nil without a Part.
	Progress *Progress

	asker
	decoder *decoder

	mu      sync.Mutex     // guards joined, part and running.Add
	joined  bool           // no list or stream may begin
	part    *portion       // since the last list; nil: everything
	running sync.WaitGroup // running lists and streams
}

// Counts are the numbers of complete lists, opened watches, and watches closed because nothing
// arrived.
type Counts struct{ Lists, Watches, Quiet int64 }

// New returns a ListerWatcher.
func New(t Target, i Informer) *ListerWatcher {
	l := &ListerWatcher{}
	l.target, l.informer = &t, i
	l.pace, l.marks = rate.NewLimiter(rate.Every(time.Second), 5), make(chan object.Object)
	l.poked, l.doubts = make(chan struct{}, 1), make(chan struct{}, 1)
	l.decoder = &decoder{Target: &t, broken: &l.Broken, informer: i}
	if t.Part != nil {
		l.Progress = &Progress{again: make(chan struct{}, 1), reached: make(chan struct{})}
	}
	return l
}

// ListWatch returns the client-go form, for an informer.
func (l *ListerWatcher) ListWatch() *toolscache.ListWatch {
	return &toolscache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.watch}
}

// Codec returns the codec of the target.
func (l *ListerWatcher) Codec() storage.Codec { return l.target.Codec }

// Counts returns the current counts.
func (l *ListerWatcher) Counts() Counts {
	return Counts{l.lists.Load(), l.watches.Load(), l.quiet.Load()}
}

// Listed returns the version of the last complete list. ok is false before the first one.
func (l *ListerWatcher) Listed() (version string, ok bool) {
	version, ok = l.listed.Load().(string)
	return version, ok
}

// Mark delivers the delete of an object that never existed, after all events delivered or listed so
// far. It returns false if ctx ends first.
func (l *ListerWatcher) Mark(ctx context.Context, mark object.Object) bool {
	select {
	case l.marks <- mark:
		return true
	case <-ctx.Done():
		return false
	}
}

// Join waits for running lists and streams, and prevents new ones. The reflector does not join its
// lists.
func (l *ListerWatcher) Join() {
	l.mu.Lock()
	l.joined = true
	l.mu.Unlock()
	l.running.Wait()
}

// begin reports whether a list or a stream may begin. The caller must then call running.Done.
func (l *ListerWatcher) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.joined {
		l.running.Add(1)
	}
	return !l.joined
}

func (l *ListerWatcher) list(ctx context.Context, o metav1.ListOptions) (list runtime.Object, err error) {
	if !l.begin() {
		return nil, context.Canceled
	}
	defer l.running.Done()
	l.beginListing(&o)
	if o.Continue == "" {
		if err := l.slow(ctx); err != nil {
			return nil, err
		}
	}
	if list, err = l.listPart(ctx, &l.asker, o, l.current(), false); err != nil {
		return nil, err
	}
	if o.Continue == "" {
		l.lists.Add(1)
	}
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if o, ok := item.(object.Object); ok {
			l.timeline.note(o.GetResourceVersion(), o, false)
		}
		return nil
	})
	if m, err := meta.ListAccessor(list); err == nil {
		l.listed.Store(m.GetResourceVersion())
		if m.GetContinue() == "" {
			l.timeline.listed(m.GetResourceVersion())
			l.informer.Listed()
		}
	}
	return list, nil
}

func (l *ListerWatcher) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !l.begin() {
		return nil, context.Canceled
	}
	defer l.running.Done()
	o.Watch = true
	if o.SendInitialEvents == nil {
		l.Broken.endList(o.ResourceVersion)
		l.informer.Delivered()
	} else {
		if l.unending.Load() { // the reflector makes a list instead
			return nil, apierrors.NewBadRequest("the API server did not end the last streamed initial list")
		}
		l.beginListing(&o)
	}
	part := l.current()
	open := func(ctx context.Context, o metav1.ListOptions) (*opened, error) { return l.open(ctx, o, part) }
	if err := l.slow(ctx); err != nil {
		return nil, err
	}
	w, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	s := newStream(&l.asker, open, o)
	s.complete = l.Broken.endList
	if part != nil {
		s.slotFilter = &slotFilter{
			portion: part, outlet: s.outlet, progress: l.Progress, informer: l.informer, list: l.listSlots, ahead: map[types.NamespacedName]bool{},
		}
	}
	l.running.Go(func() { s.run(ctx, w) })
	return s, nil
}

func (l *ListerWatcher) open(ctx context.Context, o metav1.ListOptions, part *portion) (*opened, error) {
	w := &opened{}
	d := *l.decoder
	d.part = part
	done, err := l.persist(ctx, o, func(ctx context.Context, m *meta.RESTMapping) error {
		r, err := d.requests(m)
		if err == nil {
			err = part.resolve(ctx, l.target.Backend)
		}
		if err == nil {
			w.sent = time.Now()
			w.Interface, err = r.watch(ctx, l.target.narrow(o))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	l.watches.Add(1)
	w.done = done
	return w, nil
}

type opened struct {
	watch.Interface

	sent time.Time // the request; the API server's time limit began later
	done func()
}

func (o *opened) Stop() {
	o.Interface.Stop()
	o.done()
}

// beginListing is called before each request of a list, and before a watch that begins with one.
func (l *ListerWatcher) beginListing(o *metav1.ListOptions) {
	if o.Continue != "" {
		return
	}
	// The reflector's first list has the version 0: any state that the API server happens to have.
	// After a crash, it may lack what the process wrote before.
	if l.begun.Add(1); l.fresh.Load() || o.ResourceVersion == "0" {
		o.ResourceVersion = ""
		if o.SendInitialEvents == nil {
			o.ResourceVersionMatch = ""
		}
	}
	l.timeline.restart()
	l.Broken.beginList()
	if p := l.target.Part; p != nil {
		slots, _ := p.Wanted()
		part := newPortion(p, &l.Broken, &slots)
		l.mu.Lock()
		l.part = part
		l.mu.Unlock()
	}
	if l.lists.Load() > 0 {
		// The kind may have come back different, for example in another scope.
		l.target.Backend.Forget(l.target.Kind)
	}
}

func (l *ListerWatcher) current() *portion {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.part
}

// listPart makes one list, or one page of it, of a part. late is about the decoder.
func (l *ListerWatcher) listPart(ctx context.Context, a *asker, o metav1.ListOptions, part *portion, late bool) (list runtime.Object, err error) {
	d := *l.decoder
	d.part, d.late = part, late
	done, err := a.persist(ctx, o, func(ctx context.Context, m *meta.RESTMapping) error {
		r, err := d.requests(m)
		if err == nil {
			err = part.resolve(ctx, l.target.Backend)
		}
		if err == nil {
			list, err = r.list(ctx, l.target.narrow(o))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	done()
	return list, nil
}

// slotsOf is the Informer of a list of slots, whose failures do not end the watch.
type slotsOf struct {
	Informer
	progress *Progress
}

func (s slotsOf) Report(_ hook.Phase, why error) { s.progress.fail(why) }

// listSlots lists the objects of some slots, at a version or later, beside the running watch. It
// repeats the list until it succeeds or ctx ends.
func (l *ListerWatcher) listSlots(ctx context.Context, slots *SlotSet, from string) ([]object.Object, error) {
	a := &asker{target: l.target, informer: slotsOf{l.informer, l.Progress}, pace: l.pace}
	o := metav1.ListOptions{ResourceVersion: from}
	for {
		if err := a.slow(ctx); err != nil {
			return nil, err
		}
		list, err := l.listPart(ctx, a, o, newPortion(l.target.Part, &l.Broken, slots), true)
		if err != nil && o.ResourceVersion != "" && onlyListHelps(err) {
			o.ResourceVersion = "" // the newest one, which is later
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := meta.ExtractListWithAlloc(list)
		items := make([]object.Object, 0, len(found))
		for _, one := range found {
			if o, ok := one.(object.Object); ok {
				items = append(items, o)
			}
		}
		return items, err
	}
}
