// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/setpoint-dev/setpoint/client"
)

// Validator has functions that reject requests with an error. A nil function allows all requests,
// and by default the API server does not call the webhook for its operation.
//
// The functions own the objects. The package doc describes their contexts and errors.
type Validator[T client.Object] struct {
	// Create validates a new object.
	Create func(ctx context.Context, obj T) error
	// Update validates a change. It is also called for objects that are being deleted: allow what
	// only removes a finalizer, or the object cannot be deleted.
	Update func(ctx context.Context, old, obj T) error
	// Delete validates a deletion. obj is the stored object.
	Delete func(ctx context.Context, obj T) error
}

// AddValidator adds a validating webhook for the objects of one kind. By default, the API server
// does not call it for subresources such as status. Mistakes are errors of the manager's Run.
func AddValidator[T client.Object](w *Webhooks, v Validator[T], r Registration) {
	w.add("AddValidator", func() error {
		k, err := kindOf[T](w.o.Scheme)
		if err != nil {
			return err
		}
		operations := v.operations()
		if operations == nil {
			return errors.New("the Validator has no function; set Create, Update or Delete")
		}
		r = k.registration(&w.o, "validate", r, operations)
		return w.mountAdmissionLocked(&admission{name: r.Name, r: r, handle: v.handler(w, k)})
	})
}

func (v Validator[T]) operations() (all []admissionregistrationv1.OperationType) {
	if v.Create != nil {
		all = append(all, admissionregistrationv1.Create)
	}
	if v.Update != nil {
		all = append(all, admissionregistrationv1.Update)
	}
	if v.Delete != nil {
		all = append(all, admissionregistrationv1.Delete)
	}
	return all
}

func (v Validator[T]) handler(w *Webhooks, k kind[T]) Handler {
	return func(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		var size int64
		for _, raw := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
			size += w.sizes.of(raw, k.of) + int64(len(raw))
		}
		memory, err := w.reserve(ctx, size)
		if err != nil {
			return nil, err
		}
		defer memory.give()
		switch op := request.Operation; {
		case op == admissionv1.Create && v.Create != nil:
			obj, err := k.decode(request, request.Object)
			if err != nil {
				return nil, err
			}
			return nil, v.Create(ctx, obj)
		case op == admissionv1.Update && v.Update != nil:
			obj, err := k.decode(request, request.Object)
			if err != nil {
				return nil, err
			}
			old, err := k.decode(request, request.OldObject)
			if err != nil {
				return nil, err
			}
			return nil, v.Update(ctx, old, obj)
		case op == admissionv1.Delete && v.Delete != nil:
			obj, err := k.decode(request, request.OldObject)
			if err != nil {
				return nil, err
			}
			return nil, v.Delete(ctx, obj)
		}
		return nil, checkOperation(request)
	}
}
