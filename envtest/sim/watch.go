// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is the body of a watch. Its reader drives it.
type stream struct {
	server  *Server
	request *Request
	table   *table
	timeout <-chan time.Time
	idle    <-chan time.Time // the next bookmark; nil if the request allows none
	closed  chan struct{}
	close   func()
	cut     chan struct{}

	next   int          // index in the table's events
	frames bytes.Buffer // ready to be read
	ended  bool         // after the frames
}

func (s *Server) watchLocked(r *Request, t *table) (*http.Response, error) {
	if tooLarge, err := s.tooLargeLocked(r); tooLarge != nil {
		return tooLarge, err
	}
	w := &stream{server: s, request: r, table: t, closed: make(chan struct{}), cut: s.cut, next: len(t.events)}
	s.watches++
	w.close = sync.OnceFunc(func() {
		close(w.closed)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watches--
	})
	if n, err := strconv.Atoi(r.Query.Get("timeoutSeconds")); err == nil && n > 0 {
		w.timeout = time.After(time.Duration(n) * time.Second)
	}
	if r.Query.Get("allowWatchBookmarks") == "true" && !s.silent {
		w.idle = time.After(bookmarkEvery)
	}
	from, _ := strconv.ParseInt(r.Query.Get("resourceVersion"), 10, 64)
	switch {
	case r.Streaming() || from == 0:
		for _, o := range t.sorted() {
			if matches(r, o) {
				w.frame(watch.Added, o)
			}
		}
		if r.Streaming() {
			b := s.bookmarkLocked(t)
			b.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			w.frame(watch.Bookmark, b)
		}
	case from < t.oldest:
		w.frame(watch.Error, &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version",
		})
		w.ended = true
	default:
		for w.next > 0 && t.events[w.next-1].version > from {
			w.next--
		}
	}
	return r.respond(http.StatusOK, w), nil
}

func (s *Server) bookmarkLocked(t *table) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(t.gv().String())
	u.SetKind(t.Kind)
	u.SetResourceVersion(strconv.FormatInt(s.version, 10))
	return u
}

func (w *stream) frame(kind watch.EventType, object any) {
	if o, ok := object.(*unstructured.Unstructured); ok {
		object = w.request.form(o)
	}
	// A buffer accepts everything.
	_ = json.NewEncoder(&w.frames).Encode(map[string]any{"type": kind, "object": object})
}

// Read implements io.Reader. It waits for events.
func (w *stream) Read(p []byte) (int, error) {
	for w.frames.Len() == 0 {
		if w.ended {
			return 0, io.EOF
		}
		changed, late := w.take()
		if w.frames.Len() > 0 {
			break
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
			w.idle = time.After(bookmarkEvery)
			w.bookmark()
		}
	}
	return w.frames.Read(p)
}

// bookmarkEvery is the interval of an API server's bookmarks.
const bookmarkEvery = time.Minute

func (w *stream) bookmark() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	b := w.server.bookmarkLocked(w.table)
	if w.next < len(w.table.events) { // delayed events are not seen yet
		b.SetResourceVersion(strconv.FormatInt(w.table.events[w.next].version-1, 10))
	}
	w.frame(watch.Bookmark, b)
}

// Close implements io.Closer.
func (w *stream) Close() error {
	w.close()
	return nil
}

// take frames new events. It returns a channel that is closed when there are more, and one that
// receives when a delayed event is due.
func (w *stream) take() (changed <-chan struct{}, late <-chan time.Time) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for ; w.next < len(w.table.events); w.next++ {
		e := w.table.events[w.next]
		if left := w.server.lag - time.Since(e.at); left > 0 {
			return w.table.changed, time.After(left)
		}
		was, is := e.before != nil && matches(w.request, e.before), e.kind != watch.Deleted && matches(w.request, e.after)
		switch {
		case is && !was:
			w.frame(watch.Added, e.after)
		case is:
			w.frame(watch.Modified, e.after)
		case was:
			w.frame(watch.Deleted, e.after)
		}
	}
	return w.table.changed, nil
}

// matches reports whether an object is in the request's namespace and matches its selectors.
func matches(r *Request, o *unstructured.Unstructured) bool {
	if r.Namespace != "" && o.GetNamespace() != r.Namespace {
		return false
	}
	byLabel, err := labels.Parse(r.Query.Get("labelSelector"))
	if err != nil || !byLabel.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	byField, err := fields.ParseSelector(r.Query.Get("fieldSelector"))
	return err == nil && byField.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()})
}
