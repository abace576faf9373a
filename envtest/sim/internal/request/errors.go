// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/webhook"
)

// Failed answers with the Status of an error.
func (r *Request) Failed(err error) (*http.Response, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return r.FailWith(metav1.Status{Code: http.StatusInternalServerError, Message: err.Error()})
	}
	return r.FailWith(status.Status())
}

// NoPage answers as a server without such a path.
func (r *Request) NoPage() *http.Response {
	return r.Respond(http.StatusNotFound, "text/plain; charset=utf-8", []byte("404 page not found\n"))
}

// StatusError returns a Status as an error.
func StatusError(code int, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, //nolint:gosec // an HTTP code
	}}
}

// NoResource is the error for a resource that is not served.
func NoResource() error {
	err := StatusError(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

// NotAllowed is the error for a method that a resource does not have.
func NotAllowed() error {
	err := StatusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource")
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

// Unsupported is the error for a request that a real server serves and the sim does not.
func Unsupported(r *Request) error {
	return StatusError(http.StatusNotImplemented, "NotImplemented", fmt.Sprintf(
		"sim: %s %s is not supported; use a real API server for it: package envtest starts one", r.HTTP.Method, r.HTTP.URL.Path))
}

// NotAcceptable is the error for a form that an answer does not have.
func NotAcceptable(format string, args ...any) *apierrors.StatusError {
	return StatusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, fmt.Sprintf(format, args...))
}

// Undecodable returns the error for an object that a webhook did not convert. The real server
// describes it as corrupt, and names its place in etcd unless the request updates it.
func (r *Request) Undecodable(t *store.Table, o *unstructured.Unstructured, err error) error {
	if webhook.IsPending(err) {
		return err
	}
	err = fmt.Errorf("object not decodable revision=%s: %w", o.GetResourceVersion(), err)
	if r.Verb != "get" && r.Verb != "delete" {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %w",
		strings.TrimPrefix(t.StorageKey(o), "/registry"), err))
}
