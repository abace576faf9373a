// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func (r *Request) failed(err error) (*http.Response, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return r.FailWith(metav1.Status{Code: http.StatusInternalServerError, Message: err.Error()})
	}
	return r.FailWith(status.Status())
}

func (r *Request) noPage() *http.Response {
	return r.respond(http.StatusNotFound, "text/plain; charset=utf-8", []byte("404 page not found\n"))
}

func statusError(code int, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, //nolint:gosec // an HTTP code
	}}
}

func noResource() error {
	err := statusError(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

func notAllowed() error {
	err := statusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource")
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

// unsupported is the error for a request that a real server serves and the sim does not.
func unsupported(r *Request) error {
	return statusError(http.StatusNotImplemented, "NotImplemented", fmt.Sprintf(
		"sim: %s %s is not supported; use a real API server for it: package envtest starts one", r.http.Method, r.http.URL.Path))
}

func notAcceptable(format, goType string) error {
	return statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, fmt.Sprintf(format, goType))
}

// undecodable returns the error for an object that a webhook did not convert. The real server
// describes it as corrupt, and names its place in etcd unless the request updates it.
func (r *Request) undecodable(t *table, o *unstructured.Unstructured, err error) error {
	if _, pends := errors.AsType[*pending](err); pends {
		return err
	}
	err = fmt.Errorf("object not decodable revision=%s: %w", o.GetResourceVersion(), err)
	if r.Verb != "get" && r.Verb != "delete" {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf("StorageError: corrupt object, Code: 7, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %w",
		strings.TrimPrefix(t.StorageKey(o), "/registry"), err))
}
