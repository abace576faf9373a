// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
)

// attributes describe a write to webhooks.
type attributes struct {
	request    *Request
	table      *table      // of the requested resource
	codec      codec.Codec // of the object, which is the resource's or a Scale
	operation  admissionv1.Operation
	name       string
	object     *unstructured.Unstructured // nil for a deletion
	old        *unstructured.Unstructured // nil for a creation
	options    runtime.Object
	reinvoking bool // the second round of mutating webhooks
}

// attributesOf describes a write of u, which replaces live (nil: is new).
func (r *Request) attributesOf(t *table, live, u *unstructured.Unstructured) *attributes {
	a := &attributes{request: r, table: t, codec: t.codec(), operation: admissionv1.Create, name: u.GetName(), object: u, old: live}
	if live != nil {
		a.operation = admissionv1.Update
	}
	var dry []string
	if r.dryRun {
		dry = []string{metav1.DryRunAll}
	}
	validation := r.Query.Get("fieldValidation")
	if a.operation == admissionv1.Create {
		a.options = &metav1.CreateOptions{DryRun: dry, FieldManager: r.manager, FieldValidation: validation}
	} else {
		a.options = &metav1.UpdateOptions{DryRun: dry, FieldManager: r.manager, FieldValidation: validation}
	}
	return a
}

// namespace returns the namespace of the object. A Namespace is in itself.
func (a *attributes) namespace() string {
	if a.table.IsNamespaces() {
		return a.name
	}
	return a.request.Namespace
}

// exempt reports whether no webhook sees a write: those that configure admission.
func (a *attributes) exempt() bool {
	return a.table.Group == admissionregistrationv1.GroupName && slices.Contains([]string{
		"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	}, a.table.Kind)
}

// mutatedLocked returns what the mutating webhooks make of u, which replaces live (nil: is new).
func (s *Server) mutatedLocked(r *Request, t *table, live, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if r.Subresource == "scale" { // they have seen the Scale
		return u, nil
	}
	a := r.attributesOf(t, live, u)
	err := s.mutateLocked(a)
	return a.object, err
}

// mutateLocked calls the mutating webhooks that match a write, in the order of their
// configurations' names, and replaces a.object by their result. If an object changed after a
// webhook with reinvocationPolicy IfNeeded, that webhook is called again, once.
func (s *Server) mutateLocked(a *attributes) error {
	hooks := s.hooksLocked(mutatingConfigurations)
	if len(hooks) == 0 || a.exempt() {
		return nil
	}
	var invoked []*hook // and may be invoked again
	again := map[*hook]bool{}
	for _, a.reinvoking = range []bool{false, true} {
		for _, h := range hooks {
			if a.reinvoking && !again[h] {
				continue
			}
			called, changed, err := s.mutateByLocked(a, h)
			if err != nil {
				return err
			}
			if changed {
				for _, earlier := range invoked {
					again[earlier] = true
				}
				invoked = nil
			}
			if called && *h.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
				invoked = append(invoked, h)
			}
		}
	}
	return nil
}

func (s *Server) mutateByLocked(a *attributes, h *hook) (called, changed bool, err error) {
	i, err := s.matchLocked(h, a)
	if i == nil || err != nil {
		return false, false, err
	}
	result, err := s.reviewLocked(a, i)
	if result == nil || err != nil {
		return true, false, err
	}
	if !result.Allowed {
		return true, false, denied(h.Name, result.Result)
	}
	operations, err := jsonpatch.DecodePatch(result.Patch)
	switch {
	case len(result.Patch) == 0 || err == nil && len(operations) == 0:
		return true, false, nil
	case err != nil:
		return true, false, h.failed(fmt.Errorf("received undecodable patch in webhook response: %w", err))
	case a.object == nil:
		return true, false, apierrors.NewInternalError(fmt.Errorf(
			"admission webhook %q attempted to modify the object, which is not supported for this operation", h.Name))
	case *result.PatchType != admissionv1.PatchTypeJSONPatch:
		return true, false, h.failed(fmt.Errorf("unsupported patch type %q", *result.PatchType))
	}
	after, err := i.patched(operations)
	if err != nil {
		return true, false, apierrors.NewInternalError(err)
	}
	changed = !apiequality.Semantic.DeepEqual(i.object.Object, after.Object)
	if i.table != a.table {
		if after, err = s.convertOneLocked(&a.request.answers, a.table, after); err != nil {
			return true, false, internal(err)
		}
	}
	a.object = after
	return true, changed, nil
}

func (i *invocation) patched(operations jsonpatch.Patch) (*unstructured.Unstructured, error) {
	before, err := i.codec.Encode(i.object)
	if err != nil {
		return nil, err
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, err
	}
	u, _, _, err := i.codec.Decode(runtime.ContentTypeJSON, after, false)
	return u, err
}

// approveLocked calls the validating webhooks that match a write. The first refusal counts, but all
// are called, as in the real server.
func (s *Server) approveLocked(a *attributes) error {
	hooks := s.hooksLocked(validatingConfigurations)
	if len(hooks) == 0 || a.exempt() {
		return nil
	}
	var invocations []*invocation
	for _, h := range hooks {
		i, err := s.matchLocked(h, a)
		if err != nil {
			return err
		}
		if i != nil {
			invocations = append(invocations, i)
		}
	}
	var first error
	for _, i := range invocations {
		result, err := s.reviewLocked(a, i)
		if p := (*pending)(nil); errors.As(err, &p) {
			return err
		}
		if err == nil && result != nil && !result.Allowed {
			err = denied(i.hook.Name, result.Result)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// dismissLocked calls the webhooks that match the deletion of an object that t shows as live.
func (s *Server) dismissLocked(r *Request, t *table, live *unstructured.Unstructured, options *metav1.DeleteOptions) error {
	if len(s.hooksLocked(mutatingConfigurations))+len(s.hooksLocked(validatingConfigurations)) == 0 {
		return nil
	}
	if _, _, pends := rules.GracePeriod(&t.Definition, live, options); pends {
		return nil
	}
	dry := options.DeepCopy()
	dry.DryRun = []string{metav1.DryRunAll}
	if _, _, err := s.endLocked(t, t.objects[keyOf(live)], dry); err != nil {
		return err
	}
	options = options.DeepCopy()
	r.dryRun = len(options.DryRun) > 0
	a := &attributes{request: r, table: t, codec: t.codec(), operation: admissionv1.Delete, name: r.Name, old: live, options: options}
	if err := s.mutateLocked(a); err != nil {
		return err
	}
	return s.approveLocked(a)
}

func denied(name string, result *metav1.Status) error {
	status := metav1.Status{}
	if result != nil {
		status = *result
	}
	status.Code = max(status.Code, 400)
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	by := fmt.Sprintf("admission webhook %q denied the request", name)
	switch {
	case status.Message != "":
		status.Message = by + ": " + status.Message
	case status.Reason != "":
		status.Message = by + ": " + string(status.Reason)
	default:
		status.Message = by + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: status}
}

func (h *hook) failed(reason error) error {
	return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %w", h.Name, reason))
}

// internal makes an error one of the server, unless it is pending.
func internal(err error) error {
	if p := (*pending)(nil); errors.As(err, &p) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// invocation is a call of a webhook for a write.
type invocation struct {
	hook        *hook
	table       *table // the version of the resource that the webhook wants
	codec       codec.Codec
	object, old *unstructured.Unstructured // in that version
}

func (i *invocation) resource() schema.GroupVersionResource { return i.table.GVR() }
