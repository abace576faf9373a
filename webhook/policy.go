// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Policy adds a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy, or a binding of one, to the
// objects of Manifests. The API server evaluates it: it needs no call, no certificate and no
// running operator. webhooktest.SameAsPolicy compares a policy with a webhook.
//
// A policy needs a binding, in the same call or another one. Only the API server compiles the CEL
// expressions. With Options.Register, a mistake in them is an error of Check, and in the log.
func (w *Webhooks) Policy(objects ...client.Object) {
	for _, obj := range objects {
		w.add("Policy", func() error { return w.addPolicyLocked(obj) })
	}
}

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

func (w *Webhooks) validatePoliciesLocked() error {
	var wrong []error
	bound := map[string]bool{} // by kind and name of the policy
	for _, u := range w.policies {
		kind, isBinding := strings.CutSuffix(u.GetKind(), binding)
		if !isBinding {
			continue
		}
		name, _, _ := unstructured.NestedString(u.Object, "spec", "policyName")
		actions, _, _ := unstructured.NestedSlice(u.Object, "spec", "validationActions")
		bound[kind+" "+name] = true
		if name == "" {
			wrong = append(wrong, fmt.Errorf("webhook.Policy: %s has no spec.policyName; set the name of its policy", target(u)))
		}
		if kind == "ValidatingAdmissionPolicy" && len(actions) == 0 {
			wrong = append(wrong, fmt.Errorf("webhook.Policy: %s has no spec.validationActions; set Deny", target(u)))
		}
	}
	for _, u := range w.policies {
		if !strings.HasSuffix(u.GetKind(), binding) && !bound[target(u)] {
			wrong = append(wrong, fmt.Errorf("webhook.Policy: %s has no binding, so the API server would never evaluate it; add a %s with spec.policyName %q",
				target(u), u.GetKind()+binding, u.GetName()))
		}
	}
	return errors.Join(wrong...)
}

const binding = "Binding" // the end of the kinds of bindings
