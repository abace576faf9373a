// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/webhook"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
	"github.com/setpoint-dev/setpoint/internal/apipath"
)

// Request is a request that the server received.
type Request struct {
	// Verb is get, list, watch, create, update, patch, apply, delete, deletecollection or discover.
	Verb string
	// Resource is the requested resource; its Resource is empty for discover.
	Resource schema.GroupVersionResource
	// Namespace is empty for cluster-scoped kinds and for lists of all namespaces.
	Namespace string
	// Name and Subresource are empty if the path has none.
	Name, Subresource string
	// Query holds the URL parameters.
	Query url.Values
	// Header holds the HTTP header, such as the content type.
	Header http.Header

	HTTP     *http.Request
	Body     []byte
	DryRun   bool
	Manager  string            // the field manager
	Empties  string            // names the empty lists and maps in the metadata of an apply
	Warnings []string          // Warning headers of the answer
	Only     string            // the name of /watch/…/name
	table    *store.Table      // nil before Negotiate
	Form     wire.Form         // of the answer; Negotiate sets it
	Answers  webhook.Answers   // of webhooks
	Born     metav1.ObjectMeta // name, uid and creation time of the object that the request creates
}

// Fail answers with a Status with the usual reason of the code.
func (r *Request) Fail(code int, message string) (*http.Response, error) {
	return r.FailWith(metav1.Status{
		Code: int32(code), Reason: reasons[code], Message: message, //nolint:gosec // an HTTP code
	})
}

// FailWith answers with s, and with its Retry-After header, if any.
func (r *Request) FailWith(s metav1.Status) (*http.Response, error) {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	s.Status = metav1.StatusFailure
	resp, err := r.Answer(int(s.Code), &s)
	if err == nil && s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	return resp, err
}

// Stream answers with a body that may not end.
func (r *Request) Stream(code int, contentType string, body io.ReadCloser) *http.Response {
	resp := &http.Response{
		StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		Header: http.Header{"Content-Type": {contentType}}, Body: body, Request: r.HTTP,
	}
	for _, w := range r.Warnings {
		resp.Header.Add("Warning", w)
	}
	return resp
}

// Warn adds a warning to the answer, once.
func (r *Request) Warn(text string) {
	if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil && !slices.Contains(r.Warnings, header) {
		r.Warnings = append(r.Warnings, header)
	}
}

// WriteOptions reads and checks the options of a write, which are of the given kind.
func (r *Request) WriteOptions(kind string) error {
	o := metav1.UpdateOptions{
		DryRun: r.Query["dryRun"], FieldManager: r.Query.Get("fieldManager"), FieldValidation: r.Query.Get("fieldValidation"),
	}
	if errs := validation.ValidateUpdateOptions(&o); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
	}
	r.DryRun, r.Manager = len(o.DryRun) > 0, o.FieldManager
	return nil
}

var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:           metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:         metav1.StatusReasonUnauthorized,
	http.StatusForbidden:            metav1.StatusReasonForbidden,
	http.StatusNotFound:             metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed:     metav1.StatusReasonMethodNotAllowed,
	http.StatusConflict:             metav1.StatusReasonConflict,
	http.StatusGone:                 metav1.StatusReasonExpired,
	http.StatusUnsupportedMediaType: metav1.StatusReasonUnsupportedMediaType,
	http.StatusUnprocessableEntity:  metav1.StatusReasonInvalid,
	http.StatusTooManyRequests:      metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError:  metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:   metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:       metav1.StatusReasonTimeout,
}

// Parse returns the request of a client.
func Parse(h *http.Request) *Request {
	r := &Request{Query: h.URL.Query(), Header: h.Header.Clone(), HTTP: h}
	t := apipath.Parse(h.Method, h.URL.Path, h.URL.RawQuery)
	if t.Resource == "" {
		return r.discovery(h.URL.Path)
	}
	r.Resource = schema.GroupVersionResource{Group: t.Group, Version: t.Version, Resource: t.Resource}
	r.Verb, r.Namespace, r.Name, r.Subresource = t.Verb, t.Namespace, t.Name, t.Subresource
	switch {
	case r.Verb == "list" || r.Verb == "watch":
		r.Only, r.Name = r.Name, ""
	case r.Verb == "patch" && strings.HasPrefix(h.Header.Get("Content-Type"), "application/apply-patch"):
		r.Verb = "apply"
	}
	if t.Resource == "namespaces" {
		r.Namespace = ""
	}
	return r
}

func (r *Request) discovery(path string) *Request {
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case len(parts) == 2 && parts[0] == "api":
		r.Resource.Version = parts[1]
	case len(parts) == 3 && parts[0] == "apis":
		r.Resource.Group, r.Resource.Version = parts[1], parts[2]
	}
	r.Verb = "discover"
	return r
}
