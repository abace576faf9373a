// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	// quietLimit is how long a watch may show nothing. An API server that offers bookmarks sends one about every minute.
	quietLimit = 3 * time.Minute
	// fruitless is how many watches in a row may break at once and without an event before the reflector lists anew: the next
	// event may be one that cannot be read.
	fruitless = 3
)

// stream is a watch that goes on where it was when its connection breaks, or has been quiet for too long. The reflector would
// do that, too, but after pauses of up to 30 seconds that grow with each break. What it ends with is an error that makes the
// reflector list anew. A stream that begins with the initial list and breaks before its end makes the reflector ask for a plain
// list: with most errors it would sleep instead, and through a stop.
type stream struct {
	*asker

	open     func(context.Context, metav1.ListOptions) (watch.Interface, error)
	complete func()             // called when the initial list has come
	options  metav1.ListOptions // of the next watch; asks for the initial list until that has come
	events   chan watch.Event
	stop     func()
	stopped  chan struct{}
}

func newStream(a *asker, open func(context.Context, metav1.ListOptions) (watch.Interface, error), o metav1.ListOptions) *stream {
	// The buffer lets the reflector, and whoever decodes the events, work at the same time.
	s := &stream{asker: a, open: open, options: o, events: make(chan watch.Event, 128), stopped: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	return s
}

// Stop implements watch.Interface.
func (s *stream) Stop() { s.stop() }

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// run gives out the events of w, and of those that follow it, until the stream is stopped, ctx ends, or only a list can help.
func (s *stream) run(ctx context.Context, w watch.Interface) {
	defer close(s.events)
	broken := 0 // watches in a row that gave nothing
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
		case s.options.SendInitialEvents != nil:
			s.brokeOff(ctx, last)
			return
		case last != nil && (onlyListHelps(last) || broken >= fruitless):
			s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(last)})
			return
		}
		if time.Since(began) > time.Minute { // so that the store has what the reflector was given
			s.reports.Delivered()
		}
		var err error
		if w, err = s.open(ctx, s.options); err != nil {
			s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(err)})
			return
		}
	}
}

// brokeOff ends a stream whose initial list did not come to its end.
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

// relay gives out the events of one watch. ended says that nobody wants more; otherwise the watch has, with an error or without.
func (s *stream) relay(ctx context.Context, w watch.Interface) (last error, ended bool) {
	quiet := time.NewTimer(s.patience())
	defer quiet.Stop()
	seen := time.Now()
	for {
		marks := s.marks
		if s.options.SendInitialEvents != nil {
			marks = nil // they come after the initial list
		}
		select {
		case mark := <-marks:
			mark.SetResourceVersion(s.options.ResourceVersion) // so that the store stays where it is
			if !s.give(ctx, watch.Event{Type: watch.Deleted, Object: mark}) {
				return nil, true
			}
		case e, open := <-w.ResultChan():
			switch {
			case !open:
				return nil, false
			case e.Type == watch.Error:
				return apierrors.FromObject(e.Object), false
			}
			seen = time.Now()
			s.note(e)
			if !s.give(ctx, e) {
				return nil, true
			}
		case <-quiet.C:
			// The timer is not set anew for each event.
			if since := time.Since(seen); since < s.patience() {
				quiet.Reset(s.patience() - since)
				continue
			}
			s.quiet.Add(1)
			err := fmt.Errorf("the watch has shown neither event nor bookmark for %s; it is started anew", s.patience())
			s.reports.State(hook.Failing, err)
			return err, false
		case <-s.stopped:
			return nil, true
		case <-ctx.Done():
			return nil, true
		}
	}
}

// patience is how long the watch may show nothing.
func (s *stream) patience() time.Duration {
	if s.options.SendInitialEvents != nil {
		return unanswered
	}
	return quietLimit
}

// note takes down how far the stream has come.
func (s *stream) note(e watch.Event) {
	o, err := meta.Accessor(e.Object)
	switch {
	case err != nil || o.GetResourceVersion() == "": // what follows on that would lack deletes
	case s.options.SendInitialEvents == nil:
		s.options.ResourceVersion = o.GetResourceVersion()
	case e.Type == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
		s.options.ResourceVersion = o.GetResourceVersion()
		s.options.SendInitialEvents, s.options.ResourceVersionMatch = nil, ""
		s.listed.Store(o.GetResourceVersion())
		s.lists.Add(1)
		s.complete()
		s.reports.Listed()
	}
}

// give gives an event to the reflector, and says whether it wanted it.
func (s *stream) give(ctx context.Context, e watch.Event) bool {
	select {
	case s.events <- e:
		return true
	case <-s.stopped:
	case <-ctx.Done():
	}
	return false
}

// statusOf makes an error one that can be an event.
func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		s := status.Status()
		return &s
	}
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
}
