// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Host is where the server pretends to be.
const Host = "http://fakeapi.test"

// Server is an API server. Make it inside the bubble that uses it.
type Server struct {
	mu        sync.Mutex // guards what follows
	tables    map[schema.GroupVersionResource]*table
	version   int64 // the newest resourceVersion, of all kinds
	uids      int
	log       []*Request
	intercept func(*Request) (*http.Response, error)
	cut       chan struct{} // closed, and made anew, to end all watches
	watches   int
	silent    bool // no bookmarks
	lag       time.Duration
}

// New makes a server that serves the given resources.
func New(resources ...Resource) *Server {
	s := &Server{tables: map[schema.GroupVersionResource]*table{}, version: 1, cut: make(chan struct{})}
	s.Serve(resources...)
	return s
}

// Config returns a configuration that reaches the server.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: Host, Transport: s, QPS: -1} }

// Serve adds resources, without objects. One that is served already stays as it is.
func (s *Server) Serve(resources ...Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range resources {
		if s.tables[r.gvr()] == nil {
			s.tables[r.gvr()] = newTable(r, s.version)
		}
	}
}

// Withdraw stops serving resources, as if their CRD was deleted: their objects are gone, unseen by watches, which end. Serve
// brings the resource back empty; a watch from before is then too old (410).
func (s *Server) Withdraw(resources ...Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range resources {
		if t := s.tables[r.gvr()]; t != nil {
			s.version += int64(len(t.objects)) // each of its objects is deleted
			delete(s.tables, r.gvr())
			close(t.gone)
		}
	}
}

// Intercept has f see each request before the server does. f may answer it; nil and nil let the server do so. f runs
// without a lock and may block (it should end with the request's client, see Request.Hang). nil ends the interception.
func (s *Server) Intercept(f func(*Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// CutWatches ends all open watches, as a restart of the API server does. Clients may go on from where they were.
func (s *Server) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// Expire forgets all history: a watch that begins from an older version than the newest is told 410. Open watches go on.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.oldest = s.version
	}
}

// Requests returns the requests so far, those that were intercepted included.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Count returns how many requests there were with the verb for the resource; "" stands for any verb.
func (s *Server) Count(verb string, of Resource) int {
	n := 0
	for _, r := range s.Requests() {
		if (verb == "" || r.Verb == verb) && r.Resource == of.gvr() {
			n++
		}
	}
	return n
}

// Silence ends the bookmarks that watches begun from now on would get each minute.
func (s *Server) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

// Lag has watches tell of each change this long after it was made. Lists are up to date.
func (s *Server) Lag(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = d
}

// Watches returns how many watches are open.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// Put creates or replaces an object, status included, on behalf of somebody else, and returns it as stored. obj is a
// pointer to an API type; an empty uid or resourceVersion means the stored one's. A mistake is a panic: it is the test's.
func (s *Server) Put(in Resource, obj metav1.Object) *unstructured.Unstructured {
	u, err := toUnstructured(obj, in)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[in.gvr()]
	if t == nil {
		panic(fmt.Sprintf("fakeapi: %s is not served", in.Name))
	}
	return s.storeLocked(t, t.objects[keyOf(u)], u)
}

// Remove deletes an object, finalizers or not, on behalf of somebody else. It reports whether it was there.
func (s *Server) Remove(in Resource, namespace, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[in.gvr()]
	if t == nil || t.objects[key{namespace, name}] == nil {
		return false
	}
	s.removeLocked(t, t.objects[key{namespace, name}])
	return true
}

// Object returns a stored object, or nil.
func (s *Server) Object(in Resource, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[in.gvr()]; t != nil && t.objects[key{namespace, name}] != nil {
		return t.objects[key{namespace, name}].DeepCopy()
	}
	return nil
}

// Version returns the newest resourceVersion.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.FormatInt(s.version, 10)
}

// Stored returns how many objects of a resource there are.
func (s *Server) Stored(in Resource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tables[in.gvr()].objects)
}
