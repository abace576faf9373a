// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NotFound is the error for an object that does not exist.
func (d Definition) NotFound(name string) error {
	return apierrors.NewNotFound(d.GVR().GroupResource(), name)
}

// Invalid is the error for an object that is not valid.
func (d Definition) Invalid(u *unstructured.Unstructured, errs field.ErrorList) error {
	group := d.Group
	if group == "events.k8s.io" { // the real server validates the core kind
		group = ""
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: group, Kind: u.GetKind()}, u.GetName(), errs)
}

// Conflict is the error for a write that another one prevents.
func (d Definition) Conflict(name, format string, args ...any) error {
	return Conflict(d.GVR().GroupResource(), name, format, args...)
}

// Conflict is the error for a write that another one prevents.
func Conflict(resource schema.GroupResource, name, format string, args ...any) error {
	return apierrors.NewConflict(resource, name, fmt.Errorf(format, args...))
}
