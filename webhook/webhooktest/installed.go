// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhooktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/setpoint-dev/setpoint/client"
)

const (
	// betweenTries is the pause between two probes.
	betweenTries = 50 * time.Millisecond
	// untilUsed is how long the server may take to use policies.
	untilUsed = time.Minute

	probeLabel, probed = "webhooktest.setpoint.dev/probe", "webhooktest.setpoint.dev/probed"
)

// installed are policies on a server, and probes that show when the server uses them. An API server
// watches policies and bindings, in the order of their changes. So it uses all of them when it uses
// a probe that was created last.
type installed struct {
	*server

	created []*unstructured.Unstructured
	probe   string
	kinds   []string // of the policies
}

func (p *installed) install(ctx context.Context, policies []*unstructured.Unstructured) error {
	p.probe = "webhooktest-" + rand.String(8)
	for _, u := range policies {
		if err := p.create(ctx, u); err != nil {
			return err
		}
		if kind, isBinding := strings.CutSuffix(u.GetKind(), "Binding"); !isBinding {
			p.kinds = append(p.kinds, kind)
		}
	}
	for _, kind := range slices.Compact(slices.Sorted(slices.Values(p.kinds))) {
		for _, u := range probes(p.probe, kind) {
			if err := p.create(ctx, u); err != nil {
				return err
			}
		}
		if err := p.wait(ctx, kind, true); err != nil {
			return err
		}
	}
	return nil
}

func (p *installed) create(ctx context.Context, u *unstructured.Unstructured) error {
	_, err := p.of(u.GroupVersionKind()).Create(ctx, u)
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("the server has the %s %q already; use a server without it", u.GetKind(), u.GetName())
	case err != nil:
		return fmt.Errorf("the server does not accept the %s %q: %w", u.GetKind(), u.GetName(), err)
	}
	p.created = append(p.created, u)
	return nil
}

// remove deletes the policies and waits until the server does not use them. The probes are deleted
// last.
func (p *installed) remove(ctx context.Context) error {
	var wrong []error
	for _, u := range p.created {
		if err := p.of(u.GroupVersionKind()).Delete(ctx, keyOf(u)); err != nil && !apierrors.IsNotFound(err) {
			wrong = append(wrong, fmt.Errorf("delete the %s %q: %w", u.GetKind(), u.GetName(), err))
		}
	}
	for _, kind := range p.kinds {
		if len(wrong) == 0 {
			wrong = append(wrong, p.wait(ctx, kind, false))
		}
	}
	return errors.Join(wrong...)
}

// wait returns when the server uses the probe of a kind, or does not.
func (p *installed) wait(ctx context.Context, kind string, want bool) error {
	ctx, cancel := context.WithTimeout(ctx, untilUsed)
	defer cancel()
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name, lease.Labels = metav1.NamespaceDefault, p.probe, map[string]string{probeLabel: p.probe}
	for {
		got, err := client.For[*coordinationv1.Lease](p.client).Create(ctx, lease, client.DryRun())
		var used bool
		switch {
		case err == nil && kind == "MutatingAdmissionPolicy":
			used = got.Labels[probed] == p.probe
		case err != nil:
			used = strings.Contains(err.Error(), p.probe+"-denied")
		}
		if used == want {
			return nil
		}
		if !pause(ctx) {
			return fmt.Errorf("the server does not evaluate a %s within %s of its change (last answer: %w); use a server that does", kind, untilUsed, errors.Join(err, ctx.Err()))
		}
	}
}

func probes(name, kind string) []*unstructured.Unstructured {
	match := &admissionregistrationv1.MatchResources{
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{probeLabel: name}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{coordinationv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"leases"}},
		}}},
	}
	fail := admissionregistrationv1.Fail
	if kind == "MutatingAdmissionPolicy" {
		return unstructuredOf(name, &admissionregistrationv1.MutatingAdmissionPolicy{Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: match, FailurePolicy: &fail, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey(%q), value: %q}]`, probed, name)},
			}},
		}}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}})
	}
	return unstructuredOf(name, &admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: match, FailurePolicy: &fail,
		Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: name + "-denied"}},
	}}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}})
}

func unstructuredOf(name string, objects ...client.Object) (all []*unstructured.Unstructured) {
	for _, obj := range objects {
		obj.SetName(name)
		content, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(obj) // types of the API
		delete(content, "status")
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1.")))
		all = append(all, u)
	}
	return all
}
