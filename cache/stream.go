// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

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
)

const (
	// quietLimit is how long a watch may show nothing. An API server that offers bookmarks sends one about every minute.
	quietLimit = 3 * time.Minute
	// fruitless is how many watches in a row may break at once and without an event before the reflector lists anew: the next
	// event may be one that cannot be read.
	fruitless = 3
)

var errQuiet = fmt.Errorf("the watch has shown neither event nor bookmark for %s; it is started anew", quietLimit)

// stream is a watch that goes on where it was when its connection breaks, or has been quiet for too long. The reflector would
// do that, too, but after pauses of up to 30 seconds that grow with each break. What it ends with is an error that makes the
// reflector list anew.
type stream struct {
	lw      *listerWatcher
	options metav1.ListOptions // of the next watch
	initial eventList          // what has not been given out of the initial list
	turn    chan watch.Event   // has room for one of that
	events  chan watch.Event
	stop    func()
	stopped chan struct{}
}

func newStream(l *listerWatcher, o metav1.ListOptions) *stream {
	s := &stream{lw: l, options: o, turn: make(chan watch.Event, 1), events: make(chan watch.Event), stopped: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	return s
}

// Stop implements watch.Interface.
func (s *stream) Stop() { s.stop() }

// ResultChan returns the channel of the next event. The reflector calls it before each.
func (s *stream) ResultChan() <-chan watch.Event {
	if len(s.turn) == 0 && len(s.initial) > 0 {
		s.turn <- s.initial.take() // there is room
	}
	if len(s.turn) > 0 {
		return s.turn
	}
	return s.events
}

// eventList is a list of events in chunks: it never copies them.
type eventList [][]watch.Event

func (l *eventList) add(e watch.Event) {
	last := len(*l) - 1
	if last < 0 || len((*l)[last]) == cap((*l)[last]) {
		*l = append(*l, make([]watch.Event, 0, 512))
		last++
	}
	(*l)[last] = append((*l)[last], e)
}

// take takes the first event, of which there must be one, so that the list does not keep it.
func (l *eventList) take() watch.Event {
	first := (*l)[0]
	e := first[0]
	first[0] = watch.Event{}
	if (*l)[0] = first[1:]; len(first) == 1 {
		(*l)[0] = nil
		*l = (*l)[1:]
	}
	return e
}

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
		if ended || (last != nil && (onlyListHelps(last) || broken >= fruitless)) {
			if last != nil {
				s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(last)})
			}
			return
		}
		var err error
		if w, err = s.lw.open(ctx, s.options); err != nil {
			s.give(ctx, watch.Event{Type: watch.Error, Object: statusOf(err)})
			return
		}
	}
}

// relay gives out the events of one watch. ended says that nobody wants more; otherwise the watch has, with an error or without.
func (s *stream) relay(ctx context.Context, w watch.Interface) (last error, ended bool) {
	quiet := time.NewTimer(quietLimit)
	defer quiet.Stop()
	seen := time.Now()
	for {
		select {
		case e, open := <-w.ResultChan():
			switch {
			case !open:
				return nil, false
			case e.Type == watch.Error:
				return apierrors.FromObject(e.Object), false
			}
			seen = time.Now()
			if o, err := meta.Accessor(e.Object); err == nil {
				s.options.ResourceVersion = o.GetResourceVersion()
			}
			if !s.give(ctx, e) {
				return nil, true
			}
		case <-quiet.C:
			// The timer is not set anew for each event.
			if since := time.Since(seen); since < quietLimit {
				quiet.Reset(quietLimit - since)
				continue
			}
			s.lw.quiet.Add(1)
			s.lw.informer.report(hook.Failing, errQuiet)
			return nil, false
		case <-s.stopped:
			return nil, true
		case <-ctx.Done():
			return nil, true
		}
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

// onlyListHelps tells the errors after which a watch cannot go on where it was.
func onlyListHelps(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
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

// streamError is an error that came, or an end that came too early, when the API server had accepted a request for a stream.
type streamError struct{ error }

// Unwrap returns what the API server said.
func (e streamError) Unwrap() error { return e.error }

// readInitial reads the initial list of w to its end, and has each object trimmed as it comes.
func (s *stream) readInitial(ctx context.Context, w watch.Interface, trim func(Object)) error {
	s.initial = nil // of a list that failed half way
	quiet := time.NewTimer(quietLimit)
	defer quiet.Stop()
	for {
		e, err := next(ctx, w, quiet.C)
		if err != nil {
			return err
		}
		if o, ok := e.Object.(Object); ok && e.Type != watch.Bookmark {
			trim(o)
		}
		quiet.Reset(quietLimit)
		s.initial.add(e)
		if o := endsInitial(e); o != nil {
			s.options.ResourceVersion = o.GetResourceVersion()
			return nil
		}
	}
}

func next(ctx context.Context, w watch.Interface, quiet <-chan time.Time) (watch.Event, error) {
	select {
	case e, open := <-w.ResultChan():
		switch {
		case !open:
			return e, streamError{errors.New("the stream ended before the initial list did")}
		case e.Type == watch.Error:
			return e, streamError{apierrors.FromObject(e.Object)}
		}
		return e, nil
	case <-quiet:
		return watch.Event{}, streamError{errQuiet}
	case <-ctx.Done():
		return watch.Event{}, ctx.Err()
	}
}

// endsInitial returns the bookmark, if it is one, that ends the initial list.
func endsInitial(e watch.Event) metav1.Object {
	o, err := meta.Accessor(e.Object)
	if e.Type == watch.Bookmark && err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		return o
	}
	return nil
}
