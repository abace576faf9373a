// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/webhook"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

// stream is the body of a watch. Its reader drives it.
type stream struct {
	api     *API
	request *request.Request
	table   *store.Table
	where   *selection
	timeout <-chan time.Time
	end     time.Time        // when timeout fires
	idle    <-chan time.Time // the next bookmark; nil if the request allows none
	closed  chan struct{}
	close   func()
	cut     chan struct{}

	initial []*unstructured.Unstructured // not yet sent
	start   int64                        // the version of the initial objects
	mark    bool                         // a bookmark ends the initial objects
	next    int                          // number of the next event of the table
	answers webhook.Answers              // of the conversion webhook
	headers bool                         // the first table of a Table watch was sent
	frames  bytes.Buffer                 // ready to be read
	ended   bool                         // after the frames
}

const (
	// bookmarkEvery is the interval of an API server's bookmarks.
	bookmarkEvery = time.Minute
	// chunk is how many bytes of events a watch prepares at once.
	chunk = 32 << 10
)

// untilBookmark fires when the next bookmark is due: each minute, and two seconds before the end.
func (w *stream) untilBookmark() <-chan time.Time {
	if w.end.IsZero() {
		return time.After(bookmarkEvery)
	}
	left := time.Until(w.end) - 2*time.Second
	if left <= 0 {
		return nil
	}
	return time.After(min(left, bookmarkEvery))
}

// bookmarkOf returns a bookmark's object: an empty one of the kind, with a version.
func bookmarkOf(t *store.Table, version int64) *unstructured.Unstructured {
	blank, err := t.Blank()
	if err != nil {
		panic(err) // objects of the kind are served
	}
	u := &unstructured.Unstructured{Object: maps.Clone(blank.Object)}
	u.Object["metadata"] = map[string]any{"resourceVersion": strconv.FormatInt(version, 10)}
	return u
}

// fail ends a watch with an ERROR event.
func (w *stream) fail(err error) {
	status := metav1.Status{Code: http.StatusInternalServerError, Message: err.Error()}
	if known, ok := err.(apierrors.APIStatus); ok {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Status = metav1.StatusFailure
	data, err := json.Marshal(status)
	if w.request.Form.Protobuf() {
		data, err = status.Marshal()
		data = wire.Envelope(status.TypeMeta, data)
	}
	if err == nil {
		err = w.request.Form.Frame(&w.frames, string(watch.Error), data)
	}
	if err != nil {
		panic(err) // a Status can be encoded
	}
	w.ended = true
}

// frame adds an event. If keep is true its encoding is kept for other watches.
func (w *stream) frame(kind watch.EventType, o *unstructured.Unstructured, keep bool) {
	data, err := w.encode(o, keep)
	if err == nil {
		err = w.request.Form.Frame(&w.frames, string(kind), data)
	}
	if err != nil {
		w.fail(err)
	}
}

func (w *stream) encode(o *unstructured.Unstructured, keep bool) ([]byte, error) {
	if w.request.Form.Convert.Kind != wire.AsTable {
		return w.table.Encode(o, w.request.Form, keep)
	}
	t, err := w.request.TableOf([]*unstructured.Unstructured{o}, map[string]any{"resourceVersion": o.GetResourceVersion()}, !w.headers)
	if err != nil {
		return nil, err
	}
	w.headers = true
	return json.Marshal(t)
}

func (w *stream) Read(p []byte) (int, error) {
	for w.frames.Len() == 0 {
		if w.ended {
			return 0, io.EOF
		}
		changed, late, err := w.take()
		if w.answers.Resolve(w.request.HTTP.Context(), err) {
			continue
		}
		w.answers = nil
		if w.frames.Len() > 0 || w.ended {
			continue
		}
		select {
		case <-changed:
		case <-late:
		case <-w.closed:
			return 0, http.ErrBodyReadAfterClose
		case <-w.request.HTTP.Context().Done():
			return 0, w.request.HTTP.Context().Err()
		case <-w.cut:
			w.ended = true
		case <-w.table.Gone:
			w.ended = true
		case <-w.timeout:
			w.ended = true
		case <-w.idle:
			w.idle = w.untilBookmark()
			w.bookmark()
		}
	}
	return w.frames.Read(p)
}

func (w *stream) bookmark() {
	w.api.store.Lock()
	defer w.api.store.Unlock()
	version := w.api.store.Version
	// Delayed events are not seen yet.
	if w.next < w.table.End() {
		if e := w.table.Event(w.next); e != nil {
			version = e.Version - 1
		}
	}
	if version >= w.start { // a watch from a future version sends nothing until then
		w.frame(watch.Bookmark, bookmarkOf(w.table, version), false)
	}
}

func (w *stream) Close() error {
	w.close()
	return nil
}

// take frames the next events. It returns a channel that is closed when there are more, and one
// that receives when a delayed event is due. The error is pending if the conversion webhook has to
// answer first.
func (w *stream) take() (changed <-chan struct{}, late <-chan time.Time, err error) {
	w.api.store.Lock()
	defer w.api.store.Unlock()
	t := w.table
	if err := w.show(w.initial...); err != nil {
		return nil, nil, err
	}
	w.takeInitial()
	for ; w.frames.Len() < chunk && w.next < t.End(); w.next++ {
		e := t.Event(w.next)
		if e == nil { // too slow, as for a real server: the client resumes, and gets 410
			w.ended = true
			return nil, nil, nil
		}
		if left := w.api.Lag - time.Since(e.At); left > 0 {
			return t.Changed, time.After(left), nil
		}
		if e.Version > w.start {
			if err := w.showEvent(e); err != nil {
				return nil, nil, err
			}
			w.event(e, t.Recent(w.next))
		}
	}
	return t.Changed, nil, nil
}

// show makes sure that objects can be encoded. If their conversion fails, the watch ends.
func (w *stream) show(objects ...*unstructured.Unstructured) error {
	err := w.api.converter.Show(&w.answers, w.table, objects...)
	if webhook.IsPending(err) {
		return err
	}
	if err != nil {
		w.fail(err)
	}
	return err
}

// showEvent does the same for the objects of a change. The last state of an object is the one
// before, with another version.
func (w *stream) showEvent(e *store.Event) error {
	if w.table.Conversion == nil {
		return nil
	}
	if e.Kind != watch.Deleted {
		if err := w.show(e.After); err != nil || e.Before == nil || w.where.empty() {
			return err
		}
	}
	if err := w.show(e.Before); err != nil {
		return err
	}
	if shown, err := w.table.Present(e.Before); err == nil && shown != e.Before {
		w.table.KeepShown(e.Last(), store.WithVersion(shown, e.Version))
	}
	return nil
}

// takeInitial frames initial objects, and the bookmark after the last one.
func (w *stream) takeInitial() {
	for len(w.initial) > 0 && w.frames.Len() < chunk {
		o := w.initial[0]
		w.initial = w.initial[1:]
		w.frame(watch.Added, o, w.table.Objects[store.KeyOf(o)] == o)
	}
	if len(w.initial) == 0 && w.mark {
		w.mark, w.initial = false, nil
		b := bookmarkOf(w.table, w.start)
		b.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.frame(watch.Bookmark, b, false)
	}
}

// event frames a change as the watch's selectors see it.
func (w *stream) event(e *store.Event, keep bool) {
	was, is := e.Before != nil && w.where.matches(e.Before), e.Kind != watch.Deleted && w.where.matches(e.After)
	switch {
	case is && !was:
		w.frame(watch.Added, e.After, keep)
	case is:
		w.frame(watch.Modified, e.After, keep)
	case was:
		w.frame(watch.Deleted, e.Last(), keep)
	}
}
