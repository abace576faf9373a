// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// quietLimit is how long a watch may show nothing. An API server that offers bookmarks sends one about every minute.
const quietLimit = 3 * time.Minute

// stream is a watch that ends when it has been quiet for too long, and whose initial list may have been read to its end before:
// the reflector would deal with an error in it by itself, and sleep through a stop for some.
type stream struct {
	watch.Interface
	initial chan watch.Event // nil once it has been given out
	begun   time.Time
	seen    atomic.Int64 // when something came last, in nanoseconds after begun

	mu    sync.Mutex // guards what follows
	quiet *time.Timer
	over  bool          // nobody looks any more
	ended chan struct{} // closed when a watch that was too quiet has been ended
}

// watchOver returns w as a stream. It calls report before it ends a watch that has been quiet for too long.
func watchOver(w watch.Interface, report func()) *stream {
	s := &stream{Interface: w, begun: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = time.AfterFunc(quietLimit, func() {
		if !s.tooQuiet() {
			return
		}
		defer close(s.ended)
		report()
		w.Stop()
	})
	return s
}

// tooQuiet says whether the watch must end now; if not, it looks again later. The timer is not set anew for each event.
func (s *stream) tooQuiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	if since := time.Since(s.begun) - time.Duration(s.seen.Load()); since < quietLimit {
		s.quiet.Reset(quietLimit - since)
		return false
	}
	s.over, s.ended = true, make(chan struct{})
	return true
}

// Stop implements watch.Interface. Nothing is reported after it.
func (s *stream) Stop() {
	if ending := s.end(); ending != nil {
		<-ending
	}
	s.Interface.Stop()
}

func (s *stream) end() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.quiet.Stop()
	return s.ended
}

// ResultChan returns the channel of the next event. The reflector calls it before each.
func (s *stream) ResultChan() <-chan watch.Event {
	s.see()
	if len(s.initial) > 0 {
		return s.initial
	}
	s.initial = nil
	return s.Interface.ResultChan()
}

func (s *stream) see() { s.seen.Store(int64(time.Since(s.begun))) }

// streamError is an error that came, or an end that came too early, when the API server had accepted a request for a stream.
type streamError struct{ error }

// Unwrap returns what the API server said.
func (e streamError) Unwrap() error { return e.error }

// readInitial reads the initial list to its end, and has each object trimmed as it comes.
func (s *stream) readInitial(ctx context.Context, trim func(Object)) error {
	var events []watch.Event
	for {
		e, err := next(ctx, s.Interface)
		if err != nil {
			return err
		}
		s.see()
		if o, ok := e.Object.(Object); ok && e.Type != watch.Bookmark {
			trim(o)
		}
		events = append(events, e)
		if endsInitial(e) {
			break
		}
	}
	s.initial = make(chan watch.Event, len(events))
	for _, e := range events {
		s.initial <- e // there is room
	}
	return nil
}

func next(ctx context.Context, w watch.Interface) (watch.Event, error) {
	select {
	case e, open := <-w.ResultChan():
		switch {
		case !open:
			return e, streamError{errors.New("the stream ended before the initial list did")}
		case e.Type == watch.Error:
			return e, streamError{apierrors.FromObject(e.Object)}
		}
		return e, nil
	case <-ctx.Done():
		return watch.Event{}, ctx.Err()
	}
}

func endsInitial(e watch.Event) bool {
	o, err := meta.Accessor(e.Object)
	return e.Type == watch.Bookmark && err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
