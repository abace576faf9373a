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
	"github.com/setpoint-dev/setpoint/internal/run"
)

const (
	// quietLimit is the longest time without an event. API servers with bookmarks send one about
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

	open     func(context.Context, metav1.ListOptions) (watch.Interface, error)
	complete func() // called after the initial list
	keeper   *keeper
	stop     func()
}

func newStream(a *asker, open func(context.Context, metav1.ListOptions) (watch.Interface, error), o metav1.ListOptions) *stream {
	// The buffer lets the reflector work while the next events are decoded.
	s := &stream{asker: a, outlet: &outlet{events: make(chan watch.Event, 128), stopped: make(chan struct{}), options: o}, open: open}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	s.keeper = &keeper{outlet: s.outlet}
	return s
}

func (s *stream) Stop() { s.stop() }

func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// run delivers the events of w and of the watches after it, until the stream is stopped, ctx ends,
// or only a list can help.
func (s *stream) run(ctx context.Context, w watch.Interface) {
	defer close(s.events)
	defer s.keeper.close()
	broken := 0 // watches in a row without an event
	for {
		from, began := s.options.ResourceVersion, time.Now()
		last, ended := s.relay(ctx, w)
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
		var err error
		if s.keeper.stale {
			broken = 0
		} else {
			err = s.rest(ctx, began)
		}
		if err == nil {
			w, err = s.open(ctx, s.options)
		}
		if err != nil {
			s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(err)})
			return
		}
	}
}

// rest is called between a watch that ended and the next one.
func (s *stream) rest(ctx context.Context, began time.Time) error {
	if time.Since(began) > time.Minute { // the store now has the delivered events
		s.reports.Delivered()
	}
	s.keeper.renew() // the next watch may be at another API server
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
	s.reports.State(hook.Failing, why)
	if run.Sleep(ctx, askedFor(why)) == nil {
		s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(apierrors.NewBadRequest(why.Error()))})
	}
}

// relay delivers the events of one watch. ended reports that the stream was stopped.
func (s *stream) relay(ctx context.Context, w watch.Interface) (last error, ended bool) {
	quiet := time.NewTimer(s.patience())
	defer quiet.Stop()
	seen := time.Now()
	k := s.keeper
	for ok := k.resume(ctx); ok; {
		if k.stale {
			return nil, false
		}
		marks := s.marks
		if s.initial() {
			marks = nil // marks come after the initial list
		}
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
			began := s.note(e)
			ok = k.pass(ctx, e) && (!began || k.begin(ctx))
		case <-k.wanted:
			ok = k.follow(ctx)
		case list := <-k.listed:
			ok = k.arrive(ctx, list)
		case <-k.late:
			ok = k.position(ctx)
		case <-k.again:
			ok = k.mark(ctx)
		case <-quiet.C:
			// Events do not reset the timer.
			since := time.Since(seen)
			if since >= s.patience() {
				return s.silent(), false
			}
			quiet.Reset(s.patience() - since)
		case <-s.stopped:
			return nil, true
		case <-ctx.Done():
			return nil, true
		}
	}
	return nil, true
}

func (s *stream) silent() error {
	s.quiet.Add(1)
	err := fmt.Errorf("the watch had neither an event nor a bookmark for %s; it is restarted", s.patience())
	s.reports.State(hook.Failing, err)
	return err
}

func (s *stream) patience() time.Duration {
	if s.initial() {
		return unanswered
	}
	return quietLimit
}

// note records an event's version. It reports whether the event ends the initial list.
func (s *stream) note(e watch.Event) (began bool) {
	o, err := meta.Accessor(e.Object)
	switch {
	case err != nil || o.GetResourceVersion() == "": // a watch from here would miss deletes
	case !s.initial():
		s.options.ResourceVersion = o.GetResourceVersion()
	case e.Type == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
		s.options.ResourceVersion = o.GetResourceVersion()
		s.options.SendInitialEvents, s.options.ResourceVersionMatch = nil, ""
		s.listed.Store(o.GetResourceVersion())
		s.lists.Add(1)
		s.complete()
		s.reports.Listed()
		return true
	}
	return false
}
