// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	if r == nil {
		return (&Request{http: h}).Fail(http.StatusNotFound, "sim has nothing at "+h.URL.Path)
	}
	if intercept := s.received(r); intercept != nil {
		if resp, err := intercept(r); resp != nil || err != nil {
			return resp, err
		}
	}
	body, err := decode(h)
	if err != nil {
		return r.Fail(http.StatusUnsupportedMediaType, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serveLocked(r, body)
}

func (s *Server) received(r *Request) func(*Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, r)
	return s.intercept
}

func (s *Server) serveLocked(r *Request, body *unstructured.Unstructured) (*http.Response, error) {
	if r.Verb == "discover" {
		return s.discoverLocked(r)
	}
	t := s.tables[r.Resource]
	if t == nil || r.Name != "" && t.Namespaced != (r.Namespace != "") {
		return r.Fail(http.StatusNotFound, "the server could not find the requested resource")
	}
	old := t.objects[key{r.Namespace, r.Name}]
	switch r.Verb {
	case "list":
		return s.listLocked(r, t)
	case "watch":
		return s.watchLocked(r, t)
	case "create":
		return s.createLocked(r, t, body)
	case "apply":
		if old == nil {
			return s.createLocked(r, t, body)
		}
	}
	if old == nil {
		return r.FailWith(metav1.Status{
			Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: fmt.Sprintf("%s %q not found", t.Name, r.Name),
			Details: &metav1.StatusDetails{Name: r.Name, Group: t.Group, Kind: t.Name},
		})
	}
	switch r.Verb {
	case "get":
		return r.answer(http.StatusOK, old)
	case "update":
		return s.updateLocked(r, t, old, body)
	case "patch", "apply":
		return s.updateLocked(r, t, old, &unstructured.Unstructured{Object: merge(old.DeepCopy().Object, body.Object)})
	case "delete":
		return s.deleteLocked(r, t, old, body)
	}
	return r.Fail(http.StatusMethodNotAllowed, "sim does not know the verb "+r.Verb)
}

// Answer answers a request that another server has intercepted.
func (s *Server) Answer(r *Request) (*http.Response, error) {
	h := r.http.Clone(r.http.Context())
	return s.RoundTrip(h)
}
