// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/argument"
)

// policies are the objects of Policy.
type policies struct {
	mu      sync.Mutex // guards objects
	objects []*unstructured.Unstructured
}

func (p *policies) list() []*unstructured.Unstructured {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.objects)
}

func (p *policies) add(obj *unstructured.Unstructured) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.objects, func(o *unstructured.Unstructured) bool { return target(o) == target(obj) }) {
		return fmt.Errorf("%s has been added before; give each a name of its own", target(obj))
	}
	p.objects = append(p.objects, obj)
	return nil
}

func (w *Webhooks) addPolicy(obj client.Object) error {
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
	return w.policies.add(u)
}
