// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// RoundTrip answers one request. It implements http.RoundTripper.
func (s *Server) RoundTrip(h *http.Request) (*http.Response, error) {
	if h.Body != nil {
		defer h.Body.Close()
	}
	if err := h.Context().Err(); err != nil {
		return nil, err
	}
	r := parse(h)
	if r == nil {
		return (&Request{http: h}).Fail(http.StatusNotFound, "fakeapi has nothing at "+h.URL.Path)
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
	return r.Fail(http.StatusMethodNotAllowed, "fakeapi does not know the verb "+r.Verb)
}

func (s *Server) discoverLocked(r *Request) (*http.Response, error) {
	list := &metav1.APIResourceList{GroupVersion: r.Resource.GroupVersion().String()}
	list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}
	for _, t := range s.tables {
		if t.gv() == r.Resource.GroupVersion() {
			verbs := metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
			list.APIResources = append(list.APIResources,
				metav1.APIResource{Name: t.Name, Kind: t.Kind, Namespaced: t.Namespaced, Verbs: verbs},
				metav1.APIResource{Name: t.Name + "/status", Kind: t.Kind, Namespaced: t.Namespaced, Verbs: metav1.Verbs{"get", "patch", "update"}})
		}
	}
	if len(list.APIResources) == 0 {
		return r.Fail(http.StatusNotFound, "the server could not find the requested resource")
	}
	return r.answer(http.StatusOK, list)
}

func (s *Server) listLocked(r *Request, t *table) (*http.Response, error) {
	if tooLarge, err := s.tooLargeLocked(r); tooLarge != nil {
		return tooLarge, err
	}
	items := []any{}
	for _, o := range t.sorted() {
		if matches(r, o) {
			items = append(items, r.form(o).Object)
		}
	}
	apiVersion, kind := t.gv().String(), t.Kind+"List"
	if r.metadataOnly() {
		apiVersion, kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return r.answer(http.StatusOK, map[string]any{
		"apiVersion": apiVersion, "kind": kind, "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(s.version, 10)},
	})
}

// tooLargeLocked answers a request for a future version.
func (s *Server) tooLargeLocked(r *Request) (*http.Response, error) {
	if v, err := strconv.ParseInt(r.Query.Get("resourceVersion"), 10, 64); err != nil || v <= s.version {
		return nil, nil //nolint:nilnil // it is not too large
	}
	return r.FailWith(metav1.Status{
		Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Message: "Too large resource version",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}, RetryAfterSeconds: 1},
	})
}

func (s *Server) createLocked(r *Request, t *table, u *unstructured.Unstructured) (*http.Response, error) {
	if u.GetName() == "" {
		u.SetName(r.Name)
	}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + strconv.FormatInt(s.version, 10))
	}
	u.SetNamespace(r.Namespace)
	if u.GetName() == "" || t.Namespaced && u.GetNamespace() == "" {
		return r.Fail(http.StatusUnprocessableEntity, "metadata.name and, for a namespaced kind, the namespace are required")
	}
	if t.objects[keyOf(u)] != nil {
		return r.FailWith(metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists, Message: fmt.Sprintf("%s %q already exists", t.Name, u.GetName())})
	}
	u.SetAPIVersion(t.gv().String())
	u.SetKind(t.Kind)
	u.SetUID("")
	delete(u.Object, "status")
	return r.answer(http.StatusCreated, s.storeLocked(t, nil, u))
}

func (s *Server) updateLocked(r *Request, t *table, old, u *unstructured.Unstructured) (*http.Response, error) {
	if v := u.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return r.Fail(http.StatusConflict, fmt.Sprintf("%s %q: the object has been modified; please apply your changes to the latest version and try again", t.Name, r.Name))
	}
	if uid := u.GetUID(); uid != "" && uid != old.GetUID() {
		return r.Fail(http.StatusConflict, fmt.Sprintf("%s %q: precondition failed: uid is %s, not %s", t.Name, r.Name, old.GetUID(), uid))
	}
	from, to := u, old.DeepCopy()
	if r.Subresource != "status" { // the reverse: everything but the status
		from, to = to, u
	}
	delete(to.Object, "status")
	if status, ok := from.Object["status"]; ok {
		to.Object["status"] = status
	}
	to.SetAPIVersion(old.GetAPIVersion())
	to.SetKind(old.GetKind())
	to.SetName(old.GetName())
	to.SetNamespace(old.GetNamespace())
	return r.answer(http.StatusOK, s.storeLocked(t, old, to))
}

func (s *Server) deleteLocked(r *Request, t *table, old, options *unstructured.Unstructured) (*http.Response, error) {
	for field, has := range map[string]string{"uid": string(old.GetUID()), "resourceVersion": old.GetResourceVersion()} {
		if want, ok, _ := unstructured.NestedString(options.Object, "preconditions", field); ok && want != has {
			return r.Fail(http.StatusConflict, fmt.Sprintf("%s %q: precondition failed: %s is %s, not %s", t.Name, r.Name, field, has, want))
		}
	}
	if len(old.GetFinalizers()) == 0 {
		s.removeLocked(t, old)
		return r.answer(http.StatusOK, &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Name: old.GetName(), Kind: t.Name, UID: old.GetUID()},
		})
	}
	if old.GetDeletionTimestamp() != nil {
		return r.answer(http.StatusOK, old)
	}
	u, now := old.DeepCopy(), metav1.NewTime(time.Now())
	u.SetDeletionTimestamp(&now)
	u.SetGeneration(old.GetGeneration() + 1)
	return r.answer(http.StatusOK, s.appendLocked(t, "MODIFIED", old, u))
}

// Answer answers a request that another server has intercepted.
func (s *Server) Answer(r *Request) (*http.Response, error) {
	h := r.http.Clone(r.http.Context())
	return s.RoundTrip(h)
}
