// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
)

// dedupOwners removes owner references that occur twice, with a warning like the real server's.
func (r *Request) dedupOwners(u *unstructured.Unstructured) {
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
	r.warn(".metadata.ownerReferences contains duplicate entries" + when + "; API server dedups owner references in 1.20+, " +
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " + strings.Join(twice, ", "))
	u.SetOwnerReferences(kept)
}

// warnFinalizers warns of new finalizers of a custom kind that have no domain.
func (r *Request) warnFinalizers(t *table, u, live *unstructured.Unstructured) {
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
			r.warn(fmt.Sprintf("metadata.finalizers: %q: %s", f, message))
		}
		if strings.Contains(f, "/") || slices.Contains(rules.StandardFinalizers, f) {
			continue
		}
		path := ""
		if strings.Contains(f, ".") {
			path = " including a path (/)"
		}
		r.warn(fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name%s to avoid accidental conflicts with other finalizer writers", f, path))
	}
}
