// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
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
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/conversion"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/webhook"
)

// Admission calls the admission webhooks of the configurations in a store.
type Admission struct {
	store     *store.Store
	converter *conversion.Converter
	webhooks  *webhook.Webhooks
	hooks     map[schema.GroupVersionResource]hooks
}

// NewAdmission returns the admission of a store.
func NewAdmission(s *store.Store, c *conversion.Converter, w *webhook.Webhooks) *Admission {
	return &Admission{store: s, converter: c, webhooks: w, hooks: map[schema.GroupVersionResource]hooks{}}
}

// attributes describe a write to webhooks.
type attributes struct {
	request    *request.Request
	table      *store.Table // of the requested resource
	Codec      codec.Codec  // of the object, which is the resource's or a Scale
	operation  admissionv1.Operation
	name       string
	Object     *unstructured.Unstructured // nil for a deletion
	old        *unstructured.Unstructured // nil for a creation
	options    runtime.Object
	reinvoking bool // the second round of mutating webhooks
}

// AttributesOf describes a write of u, which replaces live (nil: is new).
func AttributesOf(r *request.Request, t *store.Table, live, u *unstructured.Unstructured) *attributes {
	a := &attributes{request: r, table: t, Codec: t.Codec(), operation: admissionv1.Create, name: u.GetName(), Object: u, old: live}
	if live != nil {
		a.operation = admissionv1.Update
	}
	var dry []string
	if r.DryRun {
		dry = []string{metav1.DryRunAll}
	}
	validation := r.Query.Get("fieldValidation")
	if a.operation == admissionv1.Create {
		a.options = &metav1.CreateOptions{DryRun: dry, FieldManager: r.Manager, FieldValidation: validation}
	} else {
		a.options = &metav1.UpdateOptions{DryRun: dry, FieldManager: r.Manager, FieldValidation: validation}
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

// Mutated returns what the mutating webhooks make of u, which replaces live (nil: is new).
func (p *Admission) Mutated(r *request.Request, t *store.Table, live, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if r.Subresource == "scale" { // they have seen the Scale
		return u, nil
	}
	a := AttributesOf(r, t, live, u)
	err := p.Mutate(a)
	return a.Object, err
}

// Mutate calls the mutating webhooks that match a write, in the order of their
// configurations' names, and replaces a.object by their result. If an object changed after a
// webhook with reinvocationPolicy IfNeeded, that webhook is called again, once.
func (p *Admission) Mutate(a *attributes) error {
	hooks := p.webhooksOf(mutatingConfigurations)
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
			called, changed, err := p.mutateBy(a, h)
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

func (p *Admission) mutateBy(a *attributes, h *hook) (called, changed bool, err error) {
	i, err := p.match(h, a)
	if i == nil || err != nil {
		return false, false, err
	}
	result, err := p.review(a, i)
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
	case a.Object == nil:
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
		if after, err = p.converter.ConvertOne(&a.request.Answers, a.table, after); err != nil {
			return true, false, internal(err)
		}
	}
	a.Object = after
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

// Approve calls the validating webhooks that match a write. The first refusal counts, but all
// are called, as in the real server.
func (p *Admission) Approve(a *attributes) error {
	hooks := p.webhooksOf(validatingConfigurations)
	if len(hooks) == 0 || a.exempt() {
		return nil
	}
	var invocations []*invocation
	for _, h := range hooks {
		i, err := p.match(h, a)
		if err != nil {
			return err
		}
		if i != nil {
			invocations = append(invocations, i)
		}
	}
	var first error
	for _, i := range invocations {
		result, err := p.review(a, i)
		if webhook.IsPending(err) {
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
	if webhook.IsPending(err) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// invocation is a call of a webhook for a write.
type invocation struct {
	hook        *hook
	table       *store.Table // the version of the resource that the webhook wants
	codec       codec.Codec
	object, old *unstructured.Unstructured // in that version
}

func (i *invocation) resource() schema.GroupVersionResource { return i.table.GVR() }

// Configured reports whether there are admission webhooks.
func (p *Admission) Configured() bool {
	return len(p.webhooksOf(mutatingConfigurations))+len(p.webhooksOf(validatingConfigurations)) > 0
}

// Dismiss calls the webhooks that match the deletion of an object that t shows as live.
func (p *Admission) Dismiss(r *request.Request, t *store.Table, live *unstructured.Unstructured, options *metav1.DeleteOptions) error {
	options = options.DeepCopy()
	r.DryRun = len(options.DryRun) > 0
	a := &attributes{request: r, table: t, Codec: t.Codec(), operation: admissionv1.Delete, name: r.Name, old: live, options: options}
	if err := p.Mutate(a); err != nil {
		return err
	}
	return p.Approve(a)
}
