// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FieldConflictError is the error of an apply with [NoForce] that would change fields of other
// field owners. apierrors.IsConflict is true for it.
type FieldConflictError struct {
	// Conflicts has each field once for each of its owners, in the API server's order.
	Conflicts []FieldConflict

	doing string
	err   error
}

// FieldConflict is a field that another field owner has set to another value.
type FieldConflict struct {
	// Field is its path, such as .spec.replicas.
	Field string
	// Owner is the API server's description of the other field owner: the name in quotes, the
	// subresource and the version, and the time of an Update.
	Owner string
}

// Error names the object, the fields, their owners and the remedy.
func (e *FieldConflictError) Error() string {
	fields := make([]string, len(e.Conflicts))
	for i, c := range e.Conflicts {
		fields[i] = c.Field + " (" + c.Owner + ")"
	}
	return fmt.Sprintf("%s: other field owners have set %s; leave these fields out of the configuration, or apply without client.NoForce to take them over",
		e.doing, strings.Join(fields, ", "))
}

// Unwrap returns the API server's error.
func (e *FieldConflictError) Unwrap() error { return e.err }

func (t target) fieldConflict(v verb, key types.NamespacedName, err error) error {
	if v != applying || !apierrors.IsConflict(err) {
		return nil
	}
	e := &FieldConflictError{doing: t.doing(v, key), err: err}
	for _, cause := range statusOf(err).Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			e.Conflicts = append(e.Conflicts, FieldConflict{cause.Field, strings.TrimPrefix(cause.Message, "conflict with ")})
		}
	}
	if len(e.Conflicts) == 0 {
		return nil // another conflict
	}
	return e
}
