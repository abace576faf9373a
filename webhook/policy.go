// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Policy adds a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy, or a binding of one, to the
// objects of Manifests. The API server evaluates it: it needs no call, no certificate and no
// running operator. webhooktest.SameAsPolicy compares a policy with a webhook.
func (w *Webhooks) Policy(objects ...client.Object) {
	for _, obj := range objects {
		w.add("Policy", func() error { return w.addPolicyLocked(obj) })
	}
}

// shipped returns the objects of Policy.
func (w *Webhooks) shipped() []*unstructured.Unstructured {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.Clone(w.policies)
}

func (w *Webhooks) addPolicyLocked(obj client.Object) error {
	if argument.IsNil(obj) {
		return errors.New("the object is nil")
	}
	kind := ""
	switch obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		kind = "ValidatingAdmissionPolicy"
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		kind = "ValidatingAdmissionPolicyBinding"
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		kind = "MutatingAdmissionPolicy"
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		kind = "MutatingAdmissionPolicyBinding"
	default:
		return fmt.Errorf("a %T is not an admission policy or its binding; give the types of admissionregistration.k8s.io/v1", obj)
	}
	if obj.GetName() == "" {
		return fmt.Errorf("the %s has no name", kind)
	}
	copied, _ := obj.DeepCopyObject().(client.Object)
	u, err := asUnstructured(named(copied, admissionregistrationv1.SchemeGroupVersion.WithKind(kind), obj.GetName()))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(w.policies, func(o *unstructured.Unstructured) bool { return target(o) == target(u) }) {
		return fmt.Errorf("%s has been added before; give each a name of its own", target(u))
	}
	w.policies = append(w.policies, u)
	return nil
}
