// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/cache"
)

// Handler answers admission requests. A nil response without an error allows the request. See the
// package doc for errors.
//
// Mutating webhooks may set Patch. The package sets UID and PatchType. The handler must not change
// the request.
type Handler func(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

type admission struct {
	name, path string
	mutating   bool
	sizes      *sizes
	r          Registration // with the defaults of Name and Rules
	handle     Handler
}

// Mutating adds a mutating webhook for anything that Default does not cover: several kinds,
// subresources, CONNECT. Registration.Name and Rules are required. Mistakes are errors of the
// manager's Run.
func (w *Webhooks) Mutating(h Handler, r Registration) { w.addHandler("Mutating", true, h, r) }

// Validating adds a validating webhook for anything that Validate does not cover, with the rules of
// Mutating.
func (w *Webhooks) Validating(h Handler, r Registration) { w.addHandler("Validating", false, h, r) }

func (w *Webhooks) addHandler(call string, mutating bool, h Handler, r Registration) {
	w.add(call, func() error {
		switch {
		case h == nil:
			return errors.New("the handler is nil")
		case r.Name == "":
			return errors.New("Registration.Name is empty; set a name of at least three parts, such as bindings.web.example.com")
		case len(r.Rules) == 0:
			return errors.New("Registration.Rules is empty; list the operations and resources of the handler")
		}
		return w.mountAdmissionLocked(&admission{name: r.Name, mutating: mutating, r: r, handle: h})
	})
}

func (w *Webhooks) mountAdmissionLocked(a *admission) error {
	a.path, a.sizes = "/"+a.name, &w.sizes
	if err := w.mountLocked(&endpoint{path: a.path, name: a.name, answer: a.answer}); err != nil {
		return err
	}
	w.admissions = append(w.admissions, a)
	return nil
}

func (a *admission) answer(ctx context.Context, body []byte) (*reply, error) {
	if len(body) > smallBody && a.sizes.of(body, reflect.TypeFor[review]()) > maxHead {
		return nil, failuref(http.StatusRequestEntityTooLarge, "the user of the AdmissionReview has too many groups or extra fields")
	}
	request, err := requestIn(body)
	if err != nil {
		return nil, err
	}
	c := &call{webhook: a.name, request: request}
	ctx = c.context(ctx)
	response, err := a.respond(ctx, request)
	if err != nil {
		return nil, err
	}
	response.UID = request.UID
	response.Warnings = append(response.Warnings[:len(response.Warnings):len(response.Warnings)], c.warned()...)
	text, err := encode(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: reviewVersion, Kind: reviewKind}, Response: response,
	})
	if err != nil {
		return nil, fmt.Errorf("the answer cannot be encoded: %w", err)
	}
	re := &reply{allowed: response.Allowed, text: text}
	if !response.Allowed && response.Result != nil {
		re.reason = string(response.Result.Reason)
	}
	return re, nil
}

// respond calls the handler. It returns an error if the failure policy applies. The response is a
// copy that the caller may change.
func (a *admission) respond(ctx context.Context, request *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, err error) {
	defer recovered(ctx, &err)
	got, err := a.handle(ctx, request)
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, cache.ErrNotSynced) || errors.As(err, new(*failure))):
		return nil, err
	case err != nil:
		return &admissionv1.AdmissionResponse{Result: statusOf(request, err)}, nil
	case got == nil:
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	case got.Patch != nil && !a.mutating:
		return nil, errors.New("the response of a validating webhook has a patch; use Mutating")
	}
	copied := *got
	if copied.Patch != nil && copied.PatchType == nil {
		copied.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	return &copied, nil
}

// maxHead is the limit of a decoded AdmissionReview without its objects, in bytes.
const maxHead = 1 << 20

const reviewVersion, reviewKind = "admission.k8s.io/v1", "AdmissionReview"

// review is an AdmissionReview whose objects share the memory of its body.
type review struct {
	metav1.TypeMeta `json:",inline"`

	Request *struct {
		admissionv1.AdmissionRequest `json:",inline"`

		Object    shared `json:"object"`
		OldObject shared `json:"oldObject"`
	} `json:"request"`
}

// shared is JSON inside of a body that does not change.
type shared []byte

// UnmarshalJSON implements json.Unmarshaler. The JSON null is nil, as in runtime.RawExtension.
func (s *shared) UnmarshalJSON(text []byte) error {
	if string(text) != "null" {
		*s = text
	}
	return nil
}

func requestIn(body []byte) (*admissionv1.AdmissionRequest, error) {
	var review review
	if err := json.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, failuref(http.StatusBadRequest, "the body is not an AdmissionReview: %v", err)
	}
	switch {
	case review.Kind != reviewKind || review.APIVersion != reviewVersion:
		return nil, failuref(http.StatusBadRequest,
			"the body is a %q of %q, not an AdmissionReview of %s; check the path and admissionReviewVersions in the webhook configuration", review.Kind, review.APIVersion, reviewVersion)
	case review.Request == nil:
		return nil, failuref(http.StatusBadRequest, "the AdmissionReview has no request")
	case review.Request.UID == "":
		return nil, failuref(http.StatusBadRequest, "the request of the AdmissionReview has no uid")
	}
	request := &review.Request.AdmissionRequest
	request.Object.Raw, request.OldObject.Raw = review.Request.Object, review.Request.OldObject
	return request, nil
}

func statusOf(request *admissionv1.AdmissionRequest, err error) *metav1.Status {
	if list := fieldErrors(err); list != nil {
		kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
		return &apierrors.NewInvalid(kind, request.Name, list).ErrStatus
	}
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		status := known.Status()
		return &status
	}
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: err.Error()}
}

// fieldErrors returns the field errors that an error consists of, or nil if it has others.
func fieldErrors(err error) (list field.ErrorList) {
	var parts []error
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case *field.Error:
		return field.ErrorList{e}
	case utilerrors.Aggregate:
		parts = e.Errors()
	case interface{ Unwrap() []error }:
		parts = e.Unwrap()
	default:
		if inner := errors.Unwrap(err); inner != nil {
			return fieldErrors(inner)
		}
	}
	for _, part := range parts {
		inner := fieldErrors(part)
		if inner == nil {
			return nil
		}
		list = append(list, inner...)
	}
	return list
}
