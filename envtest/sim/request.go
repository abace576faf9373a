// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
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

	request *request.Request // nil in the results of Server.Requests
}

func requestOf(r *request.Request) *Request {
	return &Request{
		Verb: r.Verb, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name, Subresource: r.Subresource,
		Query: r.Query, Header: r.Header, request: r,
	}
}

// String describes the request in one line.
func (r *Request) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s/%s %s", r.Verb, r.Resource.Resource, r.Namespace, r.Name, r.Subresource))
}

// Streaming reports whether the request is a watch that requests the initial list as events.
func (r *Request) Streaming() bool { return r.Query.Get("sendInitialEvents") == "true" }

// Fail answers with a Status with the usual reason of the code.
func (r *Request) Fail(code int, message string) (*http.Response, error) {
	return r.request.Fail(code, message)
}

// FailWith answers with s, and with its Retry-After header, if any.
func (r *Request) FailWith(s metav1.Status) (*http.Response, error) { return r.request.FailWith(s) }

// Forward sends the request to another server, or again to the same one, and returns the answer.
func (r *Request) Forward(to http.RoundTripper) (*http.Response, error) {
	ctx := r.request.HTTP.Context()
	return to.RoundTrip(r.request.HTTP.Clone(ctx))
}

// Refuse answers like a closed port: connection refused.
func (r *Request) Refuse() (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// Hang does not answer until the client gives up. It returns the error of the request's context.
func (r *Request) Hang() (*http.Response, error) {
	ctx := r.request.HTTP.Context()
	<-ctx.Done()
	return nil, ctx.Err()
}

// Send answers 200 with body, which is JSON. For a watch, body is a sequence of events, after which
// the stream ends. The error is nil.
func (r *Request) Send(body string) (*http.Response, error) {
	return r.request.Stream(http.StatusOK, "application/json", io.NopCloser(strings.NewReader(body))), nil
}

// SendAndHang answers like Send and then keeps the stream open until the client gives up.
func (r *Request) SendAndHang(body string) (*http.Response, error) {
	return r.request.Stream(http.StatusOK, "application/json", io.NopCloser(io.MultiReader(strings.NewReader(body), untilDone{r}))), nil
}

// untilDone is an empty reader that ends with the request's context.
type untilDone struct{ r *Request }

func (u untilDone) Read([]byte) (int, error) {
	ctx := u.r.request.HTTP.Context()
	<-ctx.Done()
	return 0, ctx.Err()
}
