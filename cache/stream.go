// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is a watch whose initial list has been read to its end. The reflector would deal with an error in it by itself, and
// sleep through a stop for some.
type stream struct {
	watch.Interface
	initial chan watch.Event
}

// ResultChan returns the channel of the next event. The reflector calls it before each.
func (s *stream) ResultChan() <-chan watch.Event {
	if len(s.initial) > 0 {
		return s.initial
	}
	return s.Interface.ResultChan()
}

// streamError is an error that came, or an end that came too early, when the API server had accepted a request for a stream.
type streamError struct{ error }

// Unwrap returns what the API server said.
func (e streamError) Unwrap() error { return e.error }

// readInitial reads the initial list of a watch to its end. After an error the watch is stopped.
func readInitial(ctx context.Context, w watch.Interface) (watch.Interface, error) {
	var events []watch.Event
	for {
		e, err := next(ctx, w)
		if err != nil {
			w.Stop()
			return nil, err
		}
		events = append(events, e)
		if !endsInitial(e) {
			continue
		}
		s := &stream{Interface: w, initial: make(chan watch.Event, len(events))}
		for _, e := range events {
			s.initial <- e // there is room
		}
		return s, nil
	}
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
