// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/rbac"
	"github.com/setpoint-dev/setpoint/webhook/internal/certs"
)

// Needs returns the rights of the package doc, for package rbac.
func (w *Webhooks) Needs() (all []rbac.Need) {
	objects, err := w.Manifests()
	if err != nil {
		return nil // Run reports it
	}
	of := func(obj *unstructured.Unstructured, why string, verbs ...string) {
		all = append(all, rbac.Need{Kind: obj.GroupVersionKind(), Rule: rbac.Rule{Names: []string{obj.GetName()}, Verbs: verbs, Why: why}})
	}
	if w.certs != nil {
		const why = "the certificates of webhooks"
		secret := w.o.certificates().Secret
		for _, r := range []rbac.Rule{{Verbs: []string{"create"}}, {Names: []string{secret.Name}, Verbs: []string{"get", "list", "update", "watch"}}} {
			r.Namespace, r.Resource, r.Why = secret.Namespace, "secrets", why
			all = append(all, rbac.Need{Rule: r})
		}
		for _, obj := range objects {
			if hasBundle(obj) {
				of(obj, why, "get", "list", "patch", "watch")
			}
		}
	}
	if !w.o.Register {
		return all
	}
	for _, obj := range registered(w) {
		verbs := []string{"list", "patch", "watch"}
		if obj.GetKind() != crdKind.Kind { // the deployment creates it
			verbs = append(verbs, "create")
		}
		of(obj, "the registration of webhooks", verbs...)
	}
	return all
}

func hasBundle(obj *unstructured.Unstructured) bool {
	switch certs.Kind(obj.GetKind()) {
	case certs.Validating, certs.Mutating, certs.CustomResourceDefinition:
		return true
	}
	return false
}
