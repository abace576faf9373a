// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/setpoint-dev/setpoint/client"
)

// AddDefaulter adds a mutating webhook for new and changed objects of one kind. The function set
// changes obj, which it owns, or rejects the request with an error. The answer is a JSON patch with
// the changes, so fields that the Go type does not have stay as they are.
//
// An unchanged element of a list keeps such fields, even if it moves. A changed element keeps them
// if its name, key, type, id or index is the same.
//
// By default, the API server does not call the webhook for subresources such as status. Mistakes
// are errors of the manager's Run.
func AddDefaulter[T client.Object](w *Webhooks, set func(ctx context.Context, obj T) error, r Registration) {
	w.add("AddDefaulter", func() error {
		k, err := kindOf[T](w.o.Scheme)
		if err != nil {
			return err
		}
		if set == nil {
			return errors.New("the function is nil")
		}
		r = k.registration(&w.o, "default", r, []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update})
		return w.mountAdmissionLocked(&admission{name: r.Name, mutating: true, r: r, handle: defaulter(w, k, set)})
	})
}

func defaulter[T client.Object](w *Webhooks, k kind[T], set func(ctx context.Context, obj T) error) Handler {
	return func(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
			return nil, checkOperation(request)
		}
		raw := request.Object.Raw
		// Three times, because patchOf also decodes the object before and after the change.
		size := 3 * (w.sizes.of(raw, k.of) + w.sizes.of(raw, reflect.TypeFor[any]()))
		memory, err := w.reserve(ctx, size+16*int64(len(raw))) // copies of the text
		if err != nil {
			return nil, err
		}
		defer memory.give()
		obj, err := k.decode(request, request.Object)
		if err != nil {
			return nil, err
		}
		before, err := encode(obj)
		if err != nil {
			return nil, fmt.Errorf("cannot encode the object: %w", err)
		}
		if err := set(ctx, obj); err != nil {
			return nil, err
		}
		obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind) // set may replace the struct
		after, err := encode(obj)
		if err != nil {
			return nil, fmt.Errorf("cannot encode the object that the function has changed: %w", err)
		}
		patch, err := patchOf(raw, before, after)
		if err != nil || patch == nil {
			return nil, err
		}
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch}, nil
	}
}
