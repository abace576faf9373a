// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

// stream is the body of a watch. Its reader drives it.
type stream struct {
	server  *Server
	request *Request
	table   *table
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
	answers answers                      // of the conversion webhook
	headers bool                         // the first table of a Table watch was sent
	frames  bytes.Buffer                 // ready to be read
	ended   bool                         // after the frames
}

// bookmarkEvery is the interval of an API server's bookmarks.
const bookmarkEvery = time.Minute

// chunk is how many bytes of events a watch prepares at once.
const chunk = 32 << 10

func (s *Server) watchLocked(r *Request, t *table) (*http.Response, error) {
	o, where, err := r.selection(t)
	if err != nil {
		return nil, err
	}
	contentType := runtime.ContentTypeJSON
	switch {
	case r.form.Media == runtime.ContentTypeYAML:
		status := metav1.Status{Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable}
		status.Message = "only the following media types are accepted: " + wire.StreamTypes[0] + ", " + wire.StreamTypes[1]
		return r.FailWith(status)
	case r.form.Protobuf():
		contentType = r.form.Media + ";stream=watch"
	}
	from, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := s.openLocked(r, where)
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		timeout := time.Duration(*o.TimeoutSeconds) * time.Second
		w.timeout, w.end = time.After(timeout), time.Now().Add(timeout)
	}
	if o.AllowWatchBookmarks && !s.silent {
		w.idle = w.untilBookmark()
	}
	if err := s.positionLocked(w, o, from); err != nil {
		w.fail(err)
	}
	return r.stream(http.StatusOK, contentType, w), nil
}

func (s *Server) openLocked(r *Request, where *selection) *stream {
	w := &stream{
		server: s, request: r, table: where.table, where: where,
		closed: make(chan struct{}), cut: s.cut, next: where.table.dropped + len(where.table.events),
	}
	s.watches++
	w.close = sync.OnceFunc(func() {
		close(w.closed)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watches--
	})
	return w
}

// positionLocked decides what a watch sends first.
func (s *Server) positionLocked(w *stream, o *internalversion.ListOptions, from int64) error {
	t := w.table
	switch {
	case o.SendInitialEvents != nil && *o.SendInitialEvents:
		if from > s.version {
			return s.tooLargeLocked(from, 1)
		}
		for _, k := range within(t.keys, w.where.prefix(), "") {
			if w.where.matches(t.objects[k]) {
				w.initial = append(w.initial, t.objects[k])
			}
		}
		w.start, w.mark = s.version, o.AllowWatchBookmarks
	case from == 0: // from now on
	case from < t.oldest:
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, t.oldest))
	default:
		w.start = from // which may be a future one
		w.next = t.dropped + t.after(from)
	}
	return nil
}

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
func (t *table) bookmarkOf(version int64) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if empty, err := kinds.Scheme().New(t.GV().WithKind(t.Kind)); err == nil {
		if content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(empty); err == nil {
			u.Object = content
		}
	}
	u.Object["metadata"] = map[string]any{"resourceVersion": strconv.FormatInt(version, 10)}
	u.SetAPIVersion(t.GV().String())
	u.SetKind(t.Kind)
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
	if w.request.form.Protobuf() {
		data, err = status.Marshal()
		data = wire.Envelope(status.TypeMeta, data)
	}
	if err == nil {
		err = w.request.form.Frame(&w.frames, string(watch.Error), data)
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
		err = w.request.form.Frame(&w.frames, string(kind), data)
	}
	if err != nil {
		w.fail(err)
	}
}

func (w *stream) encode(o *unstructured.Unstructured, keep bool) ([]byte, error) {
	if w.request.form.Convert.Kind != wire.AsTable {
		return w.table.encode(o, w.request.form, keep)
	}
	t, err := w.request.tableOf([]*unstructured.Unstructured{o}, map[string]any{"resourceVersion": o.GetResourceVersion()}, !w.headers)
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
		if w.answers.resolve(w.request.http.Context(), err) {
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
		case <-w.request.http.Context().Done():
			return 0, w.request.http.Context().Err()
		case <-w.cut:
			w.ended = true
		case <-w.table.gone:
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
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	version := w.server.version
	// Delayed events are not seen yet.
	if i := w.next - w.table.dropped; i >= 0 && i < len(w.table.events) {
		version = w.table.events[i].version - 1
	}
	if version >= w.start { // a watch from a future version sends nothing until then
		w.frame(watch.Bookmark, w.table.bookmarkOf(version), false)
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
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	t := w.table
	if err := w.show(w.initial...); err != nil {
		return nil, nil, err
	}
	w.takeInitial()
	for ; w.frames.Len() < chunk && w.next < t.dropped+len(t.events); w.next++ {
		if w.next < t.dropped { // too slow, as for a real server: the client resumes, and gets 410
			w.ended = true
			return nil, nil, nil
		}
		e := &t.events[w.next-t.dropped]
		if left := w.server.lag - time.Since(e.at); left > 0 {
			return t.changed, time.After(left), nil
		}
		if e.version > w.start {
			if err := w.showEvent(e); err != nil {
				return nil, nil, err
			}
			w.event(e, w.next-t.dropped >= len(t.events)-sharedEvents)
		}
	}
	return t.changed, nil, nil
}

// show makes sure that objects can be encoded. If their conversion fails, the watch ends.
func (w *stream) show(objects ...*unstructured.Unstructured) error {
	err := w.server.showLocked(&w.answers, w.table, objects...)
	if p := (*pending)(nil); errors.As(err, &p) {
		return err
	}
	if err != nil {
		w.fail(err)
	}
	return err
}

// showEvent does the same for the objects of a change. The last state of an object is the one
// before, with another version.
func (w *stream) showEvent(e *event) error {
	if w.table.conversion == nil {
		return nil
	}
	if e.kind != watch.Deleted {
		if err := w.show(e.after); err != nil || e.before == nil || w.where.empty() {
			return err
		}
	}
	if err := w.show(e.before); err != nil {
		return err
	}
	if shown, err := w.table.present(e.before); err == nil && shown != e.before {
		w.table.keep(e.last(), withVersion(shown, e.version))
	}
	return nil
}

// takeInitial frames initial objects, and the bookmark after the last one.
func (w *stream) takeInitial() {
	for len(w.initial) > 0 && w.frames.Len() < chunk {
		o := w.initial[0]
		w.initial = w.initial[1:]
		w.frame(watch.Added, o, w.table.objects[keyOf(o)] == o)
	}
	if len(w.initial) == 0 && w.mark {
		w.mark, w.initial = false, nil
		b := w.table.bookmarkOf(w.start)
		b.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.frame(watch.Bookmark, b, false)
	}
}

// event frames a change as the watch's selectors see it.
func (w *stream) event(e *event, keep bool) {
	was, is := e.before != nil && w.where.matches(e.before), e.kind != watch.Deleted && w.where.matches(e.after)
	switch {
	case is && !was:
		w.frame(watch.Added, e.after, keep)
	case is:
		w.frame(watch.Modified, e.after, keep)
	case was:
		w.frame(watch.Deleted, e.last(), keep)
	}
}
