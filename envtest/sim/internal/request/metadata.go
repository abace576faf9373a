// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// DedupOwners removes owner references that occur twice, with a warning like the real server's.
func (r *Request) DedupOwners(u *unstructured.Unstructured) {
	var kept []metav1.OwnerReference
	var twice []string
	owners := u.GetOwnerReferences()
	for _, o := range owners {
		if slices.ContainsFunc(kept, func(k metav1.OwnerReference) bool { return jsonvalue.Equal(k, o) }) {
			twice = append(twice, string(o.UID))
		} else {
			kept = append(kept, o)
		}
	}
	if len(twice) == 0 {
		return
	}
	when := ""
	if r.Verb == "patch" || r.Verb == "apply" {
		when = " after mutating admission happens"
	}
	r.Warn(".metadata.ownerReferences contains duplicate entries" + when + "; API server dedups owner references in 1.20+, " +
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " + strings.Join(twice, ", "))
	u.SetOwnerReferences(kept)
}

// WarnFinalizers warns of new finalizers of a custom kind that have no domain.
func (r *Request) WarnFinalizers(t *store.Table, u, live *unstructured.Unstructured) {
	if t.BuiltIn {
		return
	}
	var old []string
	if live != nil {
		old = live.GetFinalizers()
	}
	for _, f := range slices.Sorted(slices.Values(u.GetFinalizers())) {
		if slices.Contains(old, f) {
			continue
		}
		for _, message := range utilvalidation.IsQualifiedName(f) {
			r.Warn(fmt.Sprintf("metadata.finalizers: %q: %s", f, message))
		}
		if strings.Contains(f, "/") || slices.Contains(rules.StandardFinalizers, f) {
			continue
		}
		path := ""
		if strings.Contains(f, ".") {
			path = " including a path (/)"
		}
		r.Warn(fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name%s to avoid accidental conflicts with other finalizer writers", f, path))
	}
}

// MatchNamespace gives u the namespace of the request. Another namespace is an error.
func (r *Request) MatchNamespace(u *unstructured.Unstructured) error {
	switch {
	case u.GetNamespace() == r.Namespace:
	case u.GetNamespace() == "", r.Namespace == "":
		u.SetNamespace(r.Namespace)
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// MatchName returns an error unless the object has the name of the request.
func (r *Request) MatchName(u *unstructured.Unstructured) error {
	if u.GetName() == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", r.Name))
	}
	if u.GetName() != r.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", u.GetName(), r.Name))
	}
	return nil
}
