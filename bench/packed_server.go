// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
)

// packedServer is an API server that can list and watch. It keeps each response, so that the
// contestants do not wait for its encoders: a pass of requests before them fills it.
type packedServer struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	served []servedKind
	events int // of a push

	mu        sync.Mutex
	responses map[string][]byte
	watchers  map[chan state]bool
}

// servedKind is a kind and the number of its objects.
type servedKind struct {
	*packedKind

	objects int
}

func newPackedServer(events int, served ...servedKind) *packedServer {
	scheme := newPackedScheme()
	return &packedServer{
		scheme: scheme, codecs: serializer.NewCodecFactory(scheme), served: served, events: events,
		responses: map[string][]byte{}, watchers: map[chan state]bool{},
	}
}

// ServeHTTP implements http.Handler: discovery, lists, watches and pushes.
func (s *packedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/push" {
		s.push(w, r)
		return
	}
	for _, k := range s.served {
		if r.URL.Path == k.path() {
			if err := s.serve(w, r, k); err != nil && r.Context().Err() == nil {
				fmt.Fprintln(os.Stderr, "server:", err)
			}
			return
		}
	}
	s.discover(w, r)
}

func (k *packedKind) path() string {
	if k.gvk.Group == "" {
		return "/api/v1/" + k.plural
	}
	return "/apis/" + k.gvk.GroupVersion().String() + "/" + k.plural
}

// discover answers /api, /apis and the resources of a group version.
func (s *packedServer) discover(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch r.URL.Path {
	case "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "/apis":
		v := metav1.GroupVersionForDiscovery{GroupVersion: benchApps.String(), Version: benchApps.Version}
		answer = metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups:   []metav1.APIGroup{{Name: benchApps.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}},
		}
	case "/api/v1", "/apis/" + benchApps.String():
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
		list.GroupVersion = strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/")
		for _, k := range packedKinds {
			if k.gvk.GroupVersion().String() == list.GroupVersion {
				list.APIResources = append(list.APIResources, metav1.APIResource{
					Name: k.plural, SingularName: strings.ToLower(k.gvk.Kind), Kind: k.gvk.Kind, Namespaced: !k.clusterScoped, Verbs: metav1.Verbs{"get", "list", "watch"},
				})
			}
		}
		answer = list
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = json.NewEncoder(w).Encode(answer)
}

// push sends the events of a state to all watches.
func (s *packedServer) push(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("state"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// A contestant that lists first may be synced before it watches.
	for s.send(state(n)) == 0 && r.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

func (s *packedServer) send(to state) (watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.watchers {
		c <- to
	}
	return len(s.watchers)
}

// serve answers a list or a watch.
func (s *packedServer) serve(w http.ResponseWriter, r *http.Request, k servedKind) error {
	form := runtime.ContentTypeJSON
	if k.gvk.Group == "" && strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		form = runtime.ContentTypeProtobuf
	}
	q := r.URL.Query()
	if on, _ := strconv.ParseBool(q.Get("watch")); !on {
		body, err := s.list(k, form, q.Get("limit"), q.Get("continue"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return err
		}
		w.Header().Set("Content-Type", form)
		_, err = io.Copy(w, bytes.NewReader(body))
		return err
	}
	w.Header().Set("Content-Type", form+";stream=watch")
	c := make(chan state, 8)
	s.mu.Lock()
	s.watchers[c] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, c)
	}()
	initial, _ := strconv.ParseBool(q.Get("sendInitialEvents"))
	return s.watch(r.Context(), w, k, form, initial, c)
}

// watch sends what it finds in states, and bookmarks as an API server does.
func (s *packedServer) watch(ctx context.Context, w http.ResponseWriter, k servedKind, form string, initial bool, states chan state) error {
	bookmarks := time.NewTicker(time.Minute)
	defer bookmarks.Stop()
	last := created
	if initial {
		states <- created
	} else if err := http.NewResponseController(w).Flush(); err != nil {
		return err
	}
	for {
		var body []byte
		var err error
		select {
		case <-ctx.Done():
			return nil
		case last = <-states:
			body, err = s.stream(k, form, last)
		case <-bookmarks.C:
			body, err = s.encodeEvents(form, k, func(send sender) error { return send(watch.Bookmark, s.bookmark(k, last, false)) })
		}
		if err != nil {
			return err
		}
		if _, err := io.Copy(w, bytes.NewReader(body)); err != nil {
			return err
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
	}
}

// kept returns a response that was made before, or makes it.
func (s *packedServer) kept(key string, make func() ([]byte, error)) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if body, ok := s.responses[key]; ok {
		return body, nil
	}
	body, err := make()
	s.responses[key] = body
	return body, err
}

// stream returns the initial events, or the updates of a push. A push updates the first objects.
// After new statuses it changes the spec of the last object: once a contestant reconciles that, it
// has dropped the others.
func (s *packedServer) stream(k servedKind, form string, to state) ([]byte, error) {
	return s.kept(fmt.Sprint("watch ", k.name, form, to), func() ([]byte, error) {
		return s.encodeEvents(form, k, func(send sender) error {
			kind, n := watch.Modified, s.events
			if to == created {
				kind, n = watch.Added, k.objects
			}
			for i := range n {
				if err := send(kind, k.object(i, to)); err != nil {
					return err
				}
			}
			switch to {
			case created:
				return send(watch.Bookmark, s.bookmark(k, created, true))
			case statusOnly:
				return send(watch.Modified, k.object(k.objects-1, changedAgain))
			}
			return nil
		})
	})
}

func (s *packedServer) bookmark(k servedKind, last state, initial bool) runtime.Object {
	o, err := s.scheme.New(k.gvk)
	if err != nil {
		panic(err)
	}
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err)
	}
	m.SetResourceVersion(last.resourceVersion(9_000_000))
	if initial {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return o
}

type sender func(what watch.EventType, o runtime.Object) error

// encodeEvents returns the events that do sends.
func (s *packedServer) encodeEvents(form string, k servedKind, do func(sender) error) ([]byte, error) {
	info, _ := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), form)
	objects := s.codecs.EncoderForVersion(info.Serializer, k.gvk.GroupVersion())
	var body bytes.Buffer
	events := streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(&body), info.StreamSerializer.Serializer)
	err := do(func(what watch.EventType, o runtime.Object) error {
		raw, err := runtime.Encode(objects, o)
		if err != nil {
			return err
		}
		return events.Encode(&metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: bytes.TrimSpace(raw)}})
	})
	return body.Bytes(), err
}

// list returns a list, or the page of it that limit and the token ask for.
func (s *packedServer) list(k servedKind, form, limit, token string) ([]byte, error) {
	first, _ := strconv.Atoi(token)
	n, _ := strconv.Atoi(limit)
	end := k.objects
	if n > 0 {
		end = min(first+n, end)
	}
	return s.kept(fmt.Sprint("list ", k.name, form, first, "-", end), func() ([]byte, error) {
		var objects []runtime.Object
		for i := first; i < end; i++ {
			objects = append(objects, k.object(i, created))
		}
		list, err := s.scheme.New(k.gvk.GroupVersion().WithKind(k.gvk.Kind + "List"))
		if err != nil {
			return nil, err
		}
		if err := meta.SetList(list, objects); err != nil {
			return nil, err
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return nil, err
		}
		m.SetResourceVersion(created.resourceVersion(9_000_000))
		if end < k.objects {
			m.SetContinue(strconv.Itoa(end))
			m.SetRemainingItemCount(new(int64(k.objects - end)))
		}
		info, _ := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), form)
		return runtime.Encode(s.codecs.EncoderForVersion(info.Serializer, k.gvk.GroupVersion()), list)
	})
}

// warm makes the responses of streamed lists, and of pushes.
func (s *packedServer) warm(pushes bool) error {
	states := []state{created}
	if pushes {
		states = append(states, changed, statusOnly)
	}
	for _, k := range s.served {
		form := runtime.ContentTypeJSON
		if k.gvk.Group == "" {
			form = runtime.ContentTypeProtobuf
		}
		for _, to := range states {
			if _, err := s.stream(k, form, to); err != nil {
				return err
			}
		}
	}
	return nil
}
