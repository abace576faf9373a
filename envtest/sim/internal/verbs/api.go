// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"net/http"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/admission"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/controllers"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/conversion"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/fieldmanager"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/webhook"
)

// API answers requests.
type API struct {
	store       *store.Store
	converter   *conversion.Converter
	managers    *fieldmanager.Managers
	admission   *admission.Admission
	controllers *controllers.Controllers
	addresses   rules.Addresses
	Watches     int
	Lag         time.Duration
}

// NewAPI returns the API of a store.
func NewAPI(s *store.Store, c *conversion.Converter, m *fieldmanager.Managers, a *admission.Admission, k *controllers.Controllers) *API {
	return &API{store: s, converter: c, managers: m, admission: a, controllers: k}
}

// Answer serves a request, and calls the webhooks that it needs.
func (a *API) Answer(r *request.Request) (*http.Response, error) {
	if err := r.Read(); err != nil {
		return r.Failed(err)
	}
	for {
		resp, err := a.attempt(r)
		if !r.Answers.Resolve(r.HTTP.Context(), err) {
			return resp, err
		}
		if err := r.HTTP.Context().Err(); err != nil {
			return nil, err
		}
	}
}

// attempt serves a request. The error is pending if a webhook has to answer first.
func (a *API) attempt(r *request.Request) (*http.Response, error) {
	a.store.Lock()
	defer a.store.Unlock()
	r.Warnings = nil
	version := a.store.Version
	a.managers.Current = r
	resp, err := a.serve(r)
	a.managers.Current = nil
	if a.store.Version != version {
		a.controllers.Settle()
	}
	if err == nil || webhook.IsPending(err) {
		return resp, err
	}
	return r.Failed(err)
}

// serve answers a request. An error that is an APIStatus becomes that Status.
func (a *API) serve(r *request.Request) (*http.Response, error) {
	if r.Verb == "discover" {
		return a.discover(r)
	}
	t := a.store.Tables[r.Resource]
	switch {
	case t == nil:
		return a.notServed(r)
	case t.Namespaced != (r.Namespace != "") && (r.Name != "" || r.Namespace != ""):
		return a.notServed(r)
	case r.HTTP.Method == http.MethodHead:
		return nil, request.NotAllowed()
	case t.Native && t.StorageKind.Version != t.Version: // autoscaling/v1
		return nil, request.Unsupported(r)
	case t.IsReview():
		return a.review(r, t)
	case t.Native && r.Subresource == "" && !t.Takes(r.Verb):
		return nil, request.NotAllowed()
	}
	if err := r.Negotiate(t); err != nil {
		return nil, err
	}
	switch {
	case r.Verb == "list":
		return a.list(r, t)
	case r.Verb == "watch":
		return a.watch(r, t)
	case !allows(t, r):
		return nil, request.NotAllowed()
	}
	return a.serveObject(r, t)
}

// serveObject answers a request for one object, or one that changes a collection.
func (a *API) serveObject(r *request.Request, t *store.Table) (*http.Response, error) {
	live, err := a.converter.Read(r, t, t.Objects[store.Key{Namespace: r.Namespace, Name: r.Name}])
	if err != nil {
		return nil, err
	}
	if r.Subresource != "" {
		return a.subresource(r, t, live)
	}
	switch r.Verb {
	case "create":
		return a.create(r, t)
	case "get":
		if live == nil {
			return nil, t.NotFound(r.Name)
		}
		return a.get(r, live)
	case "update":
		return a.update(r, t, live)
	case "patch", "apply":
		return a.patch(r, t, live)
	case "delete":
		return a.delete(r, t, live)
	case "deletecollection":
		return a.deleteCollection(r, t)
	}
	return nil, request.Unsupported(r)
}

// allows reports whether the method fits the path: a collection or one object.
func allows(t *store.Table, r *request.Request) bool {
	switch r.HTTP.Method {
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

// notServed answers a request for an unknown resource like the real server.
func (a *API) notServed(r *request.Request) (*http.Response, error) {
	if kinds.Custom(r.Resource.Group) {
		return r.NoPage(), nil
	}
	return nil, request.NoResource()
}
