// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"net/http"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

// handle answers one request that the rules let through.
func (s *Server) handle(h *http.Request) (*http.Response, error) {
	if h.Body != nil {
		defer h.Body.Close()
	}
	if err := h.Context().Err(); err != nil {
		return nil, err
	}
	r := parse(h)
	if intercept := s.received(r); intercept != nil {
		if resp, err := intercept(r); resp != nil || err != nil {
			return resp, err
		}
	}
	if err := r.read(); err != nil {
		return r.failed(err)
	}
	for {
		resp, err := s.attempt(r)
		if !r.answers.resolve(h.Context(), err) {
			return resp, err
		}
		if err := h.Context().Err(); err != nil {
			return nil, err
		}
	}
}

// attempt serves a request. The error is pending if a webhook has to answer first.
func (s *Server) attempt(r *Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.warnings = nil
	version := s.version
	s.current = r
	resp, err := s.serveLocked(r)
	s.current = nil
	if s.version != version {
		s.settleLocked()
	}
	if p := (*pending)(nil); err == nil || errors.As(err, &p) {
		return resp, err
	}
	return r.failed(err)
}

func (s *Server) received(r *Request) func(*Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[kind{r.Verb, r.Resource}]++
	kept := *r
	kept.http = nil // its context and header would stay in memory, too
	if s.log = append(s.log, &kept); len(s.log) > keptRequests {
		s.log[0] = nil
		s.log = s.log[1:]
	}
	return s.intercept
}

// serveLocked answers a request. An error that is an APIStatus becomes that Status.
func (s *Server) serveLocked(r *Request) (*http.Response, error) {
	if r.Verb == "discover" {
		return s.discoverLocked(r)
	}
	t := s.tables[r.Resource]
	switch {
	case t == nil:
		return s.notServedLocked(r)
	case t.Namespaced != (r.Namespace != "") && (r.Name != "" || r.Namespace != ""):
		return s.notServedLocked(r)
	case r.http.Method == http.MethodHead:
		return nil, notAllowed()
	case t.Native && t.stored.Version != t.Version: // autoscaling/v1
		return nil, unsupported(r)
	case t.IsReview():
		return s.review(r, t)
	case t.Native && r.Subresource == "" && !t.Takes(r.Verb):
		return nil, notAllowed()
	}
	if resp, err := r.negotiate(t); resp != nil || err != nil {
		return resp, err
	}
	switch {
	case r.Verb == "list":
		return s.listLocked(r, t)
	case r.Verb == "watch":
		return s.watchLocked(r, t)
	case !t.allows(r):
		return nil, notAllowed()
	}
	return s.serveObjectLocked(r, t)
}

// serveObjectLocked answers a request for one object, or one that changes a collection.
func (s *Server) serveObjectLocked(r *Request, t *table) (*http.Response, error) {
	live, err := s.readLocked(r, t, t.objects[key{r.Namespace, r.Name}])
	if err != nil {
		return nil, err
	}
	if r.Subresource != "" {
		return s.subresourceLocked(r, t, live)
	}
	switch r.Verb {
	case "create":
		return s.createLocked(r, t)
	case "get":
		if live == nil {
			return nil, t.NotFound(r.Name)
		}
		return s.getLocked(r, live)
	case "update":
		return s.updateLocked(r, t, live)
	case "patch", "apply":
		return s.patchLocked(r, t, live)
	case "delete":
		return s.deleteLocked(r, t, live)
	case "deletecollection":
		return s.deleteCollectionLocked(r, t)
	}
	return nil, unsupported(r)
}

// allows reports whether the method fits the path: a collection or one object.
func (t *table) allows(r *Request) bool {
	switch r.http.Method {
	case http.MethodGet:
		return r.Name != ""
	case http.MethodPost:
		return (r.Name == "" || r.Subresource != "") && t.Namespaced == (r.Namespace != "")
	case http.MethodDelete:
		return t.Namespaced == (r.Namespace != "")
	case http.MethodPut, http.MethodPatch:
		return r.Name != ""
	}
	return false
}

// notServedLocked answers a request for an unknown resource like the real server.
func (s *Server) notServedLocked(r *Request) (*http.Response, error) {
	if kinds.Custom(r.Resource.Group) {
		return r.noPage(), nil
	}
	return nil, noResource()
}

// Answer answers a request that another server has intercepted, with the errors of RoundTrip.
func (s *Server) Answer(r *Request) (*http.Response, error) {
	h := r.http.Clone(r.http.Context())
	return s.RoundTrip(h)
}
