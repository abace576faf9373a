// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/run"
)

const (
	// quietLimit is the default of Target.QuietLimit. API servers with bookmarks send one about
	// every minute.
	quietLimit = 3 * time.Minute
	// fruitless is how many watches in a row may break at once, without an event, before the
	// reflector lists again: the next event may be unreadable.
	fruitless = 3
)

// stream is a watch that resumes when its connection breaks or nothing arrives for too long. The
// reflector would pause for up to 30 seconds, and longer with each break. A stream ends with an
// error that makes the reflector list again, or make a plain list if the initial list was
// incomplete. With most other errors it would sleep through a stop.
type stream struct {
	*asker
	*outlet

	open       func(context.Context, metav1.ListOptions) (*opened, error)
	complete   func(version string) // called after the initial list
	slotFilter *slotFilter
	stop       func()

	begin    initialEvents
	versions chan string    // the answer of asking, empty if that failed; or nil
	asking   sync.WaitGroup // for the current version

	recovery recovery
	checker  checker
	doubtful bool   // the next watch is compared at once
	checked  uint64 // the API server's version when the watch before was quiet, until an event
}

func newStream(a *asker, open func(context.Context, metav1.ListOptions) (*opened, error), o metav1.ListOptions) *stream {
	// The buffer lets the reflector work while the next events are decoded.
	s := &stream{asker: a, outlet: &outlet{events: make(chan watch.Event, 128), stopped: make(chan struct{}), prepare: a.informer.Prepare, options: o}, open: open}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	s.slotFilter, s.checker.asker = &slotFilter{outlet: s.outlet}, a
	return s
}

func (s *stream) Stop() { s.stop() }

func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// run delivers the events of w and of the watches after it, until the stream is stopped, ctx ends,
// or only a list can help.
func (s *stream) run(ctx context.Context, w *opened) {
	defer close(s.events)
	defer s.slotFilter.close()
	defer s.asking.Wait()
	defer s.checker.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.doubtful = s.timeline.regressed()
	broken := 0 // watches in a row without an event
	for {
		from, began := s.options.ResourceVersion, time.Now()
		last, ended := s.relay(ctx, w)
		broke := time.Now()
		w.Stop()
		if broken++; s.options.ResourceVersion != from || time.Since(began) > time.Second {
			broken = 0
		}
		switch {
		case ended:
			return
		case s.initial():
			s.brokeOff(ctx, last)
			return
		case last != nil && (onlyListHelps(last) || broken >= fruitless):
			s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(last)})
			return
		}
		err := s.rest(ctx, began)
		if err == nil {
			s.doubtful = s.doubtful || s.early(last, broke.Sub(w.sent))
			w, err = s.open(ctx, s.options)
			s.doubtful = s.doubtful || time.Since(broke) > time.Second // some attempts have failed
		}
		if err != nil {
			s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(err)})
			return
		}
	}
}

// early reports whether a watch ended before its time limit, as when the API server ends. A quiet
// one was compared just now.
func (s *stream) early(last error, lasted time.Duration) bool {
	limit := s.options.TimeoutSeconds
	return s.checked == 0 && (last != nil || limit == nil || lasted < time.Duration(*limit)*time.Second)
}

// rest is called between a watch that ended and the next one.
func (s *stream) rest(ctx context.Context, began time.Time) error {
	if time.Since(began) > time.Minute { // the store now has the delivered events
		s.informer.Delivered()
	}
	return s.slow(ctx)
}

func (s *stream) brokeOff(ctx context.Context, why error) {
	if why == nil {
		why = errors.New("the stream ended before the initial list did")
	}
	if onlyListHelps(why) {
		s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(why)})
		return
	}
	s.fail(hook.Failing, why)
	if run.Sleep(ctx, askedFor(why)) == nil {
		s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(apierrors.NewBadRequest(why.Error()))})
	}
}

// relay delivers the events of one watch. ended reports that the stream was stopped.
func (s *stream) relay(ctx context.Context, w watch.Interface) (last error, ended bool) {
	quiet := time.NewTimer(s.patience())
	defer quiet.Stop()
	seen := time.Now()
	k, c := s.slotFilter, &s.checker
	due, ok := s.resume(ctx)
	for ok {
		marks, doubts := s.signals()
		select {
		case mark := <-marks:
			mark.SetResourceVersion(s.options.ResourceVersion) // the store keeps its version
			ok = s.give(ctx, watch.Event{Type: watch.Deleted, Object: mark})
		case e, open := <-w.ResultChan():
			switch {
			case !open:
				return nil, false
			case e.Type == watch.Error:
				return apierrors.FromObject(e.Object), false
			}
			seen = time.Now()
			due, ok = s.deliver(ctx, e, due)
		case <-s.recovery.next:
			s.look(seen)
		case <-k.wanted:
			ok = k.follow(ctx)
		case list := <-k.listed:
			ok = k.arrive(ctx, list)
		case <-k.late:
			ok = k.position(ctx)
		case <-k.again:
			ok = k.mark(ctx)
		case <-quiet.C:
			again, err := s.lapse(ctx, time.Since(seen))
			if err != nil {
				return err, false
			}
			quiet.Reset(again)
		case s.begin.current = <-s.versions:
			s.versions = nil // if it is empty, it is asked for again
		case <-doubts:
			c.afterDoubt(ctx)
		case <-c.next:
			c.begin(ctx)
		case a := <-c.results:
			if over, ended := s.compared(ctx, a, seen); over {
				return a.err, ended
			}
		case <-s.poked:
			due, ok = s.repair(ctx)
		case <-due:
			s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(apierrors.NewResourceExpired("the API server was restored: everything is listed again"))})
			return nil, true
		case <-s.stopped:
			return nil, true
		case <-ctx.Done():
			return nil, true
		}
	}
	return nil, true
}

// resume is called when a watch begins. due is the time of a list that the watch must end for.
func (s *stream) resume(ctx context.Context) (due <-chan time.Time, ok bool) {
	if s.doubtful && !s.initial() {
		s.checker.afterBreak(ctx)
	}
	s.doubtful = false
	s.recovery = recovery{}
	s.awaitMissed()
	due, ok = s.repair(ctx)
	return due, ok && s.slotFilter.resume(ctx)
}

// signals returns the marks and doubts of the asker, or nil during the initial list: they come
// after it.
func (s *stream) signals() (marks chan object.Object, doubts chan struct{}) {
	if s.initial() {
		return nil, nil
	}
	return s.marks, s.doubts
}

// deliver passes an event to the slotFilter. It returns due, or the result of repair if the event
// ends the initial list.
func (s *stream) deliver(ctx context.Context, e watch.Event, due <-chan time.Time) (<-chan time.Time, bool) {
	began := s.note(e)
	s.awaitMissed()
	if ok := s.slotFilter.pass(ctx, e); !ok || !began {
		return due, ok
	}
	if !s.slotFilter.begin(ctx) {
		return nil, false
	}
	if s.timeline.regressed() {
		s.checker.afterDoubt(ctx)
	}
	return s.repair(ctx)
}

// compared is called with the result of a comparison. over reports whether the watch must end,
// ended whether the stream must.
func (s *stream) compared(ctx context.Context, a asked, seen time.Time) (over, ended bool) {
	if why := s.checker.end(a); why != nil && s.restored(ctx, why) {
		return true, true
	}
	return s.mute(a, seen), false
}

// mute reports whether a watch that was quiet must be replaced: the comparison has failed, or the
// API server is ahead. In the second case, either other kinds have changed, or the watch is mute.
// The next watch shows which.
func (s *stream) mute(a asked, seen time.Time) bool {
	quiet := s.checker.quiet && time.Since(seen) >= s.patience()
	s.checker.quiet = false
	if !quiet || a.restored != nil || a.err == nil && a.version <= parse(s.options.ResourceVersion) {
		return false
	}
	s.quiet.Add(1)
	s.checked = a.version
	return true
}

// restored makes the reflector list again, unless a list is due in a moment.
func (s *stream) restored(ctx context.Context, why *Restored) (now bool) {
	s.timeline.forget()
	s.fresh.Store(true)
	s.checker.suspect = false
	if !s.informer.Restored(why) {
		return false
	}
	s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(apierrors.NewResourceExpired(why.Error()))})
	return true
}

// repair is called when a watch begins and when a list is wanted. due is the time for that list; if
// it is complete, repair delivers its mark. ok is false if the stream was stopped.
func (s *stream) repair(ctx context.Context) (due <-chan time.Time, ok bool) {
	p := s.pending.Load()
	switch {
	case p == nil || s.initial():
		return nil, true
	case s.begun.Load() == p.lists:
		return time.After(time.Until(p.due)), true
	}
	s.pending.CompareAndSwap(p, nil)
	p.mark.SetResourceVersion(s.options.ResourceVersion) // the store keeps its version
	return nil, s.give(ctx, watch.Event{Type: watch.Deleted, Object: p.mark})
}

// lapse is called when nothing has arrived for a while, or an initial list takes long. Events do
// not reset its timer. It returns when to call it again, or an error that ends the watch.
func (s *stream) lapse(ctx context.Context, since time.Duration) (again time.Duration, err error) {
	left := s.patience() - since
	switch {
	case left > 0 && s.initial():
		again, err = s.inspect(ctx)
		return min(left, again), err
	case left > 0:
		return left, nil
	case s.initial():
		s.quiet.Add(1)
		err = fmt.Errorf("the watch had neither an event nor a bookmark for %s; it is restarted", s.patience())
		s.fail(hook.Failing, err)
		return 0, err
	default:
		s.checker.quiet = true
		s.checker.begin(ctx)
		return s.patience(), nil
	}
}

func (s *stream) patience() time.Duration {
	if s.initial() {
		return unanswered
	}
	return s.target.quietLimit()
}

// note records an event's version. It reports whether the event ends the initial list.
func (s *stream) note(e watch.Event) (began bool) {
	if s.initial() {
		s.begin.note(e)
	}
	o, err := meta.Accessor(e.Object)
	if err != nil || o.GetResourceVersion() == "" { // a watch from here would miss deletes
		return false
	}
	s.follow(e, o)
	switch {
	case !s.initial():
		s.options.ResourceVersion = o.GetResourceVersion()
	case e.Type == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
		s.options.ResourceVersion = o.GetResourceVersion()
		s.options.SendInitialEvents, s.options.ResourceVersionMatch = nil, ""
		s.listed.Store(o.GetResourceVersion())
		s.timeline.listed(o.GetResourceVersion())
		s.lists.Add(1)
		s.complete(o.GetResourceVersion())
		s.informer.Listed()
		return true
	}
	return false
}

// follow records an event in the timeline.
func (s *stream) follow(e watch.Event, o metav1.Object) {
	of := o
	if _, dropped := e.Object.(*skipped); dropped || e.Type == watch.Bookmark {
		of = nil
	}
	if lower := s.timeline.note(o.GetResourceVersion(), of, e.Type == watch.Deleted); lower && !s.initial() {
		s.checker.afterEvent()
	}
	if v := parse(o.GetResourceVersion()); s.checked != 0 && e.Type != watch.Bookmark && v <= s.checked {
		s.informer.Report(hook.Failing, fmt.Errorf("the watch sent nothing for %s, although there were changes; it was replaced", s.patience()))
		s.informer.Report(hook.Syncing, nil)
	}
	s.checked = 0
}
