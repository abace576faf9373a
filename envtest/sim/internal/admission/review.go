// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/webhook"
)

// review returns a webhook's answer about a write. It returns nil if the call failed and the
// webhook's failure policy ignores that.
func (p *Admission) review(a *attributes, i *invocation) (*admissionv1.AdmissionResponse, error) {
	h := i.hook
	if a.request.DryRun && (h.SideEffects == nil || *h.SideEffects != admissionregistrationv1.SideEffectClassNone &&
		*h.SideEffects != admissionregistrationv1.SideEffectClassNoneOnDryRun) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.Name))
	}
	version := h.reviewVersion()
	got, ok := a.request.Answers[a.question(i)]
	if !ok && version != "" {
		return nil, p.ask(a, i, version)
	}
	var result *admissionv1.AdmissionResponse
	err := got.Err
	switch {
	case version == "":
		err = errors.New("could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)")
	case err != nil:
		err = fmt.Errorf("failed to call webhook: %w", err)
	default:
		result, err = admissionResponse(got, h.mutates)
	}
	if err != nil && *h.FailurePolicy == admissionregistrationv1.Ignore {
		return nil, nil //nolint:nilnil // as if there was no such webhook
	}
	if err != nil {
		return nil, h.failed(err)
	}
	for _, w := range result.Warnings {
		a.request.Warn(w)
	}
	return result, nil
}

// reviewVersion returns the first version of AdmissionReview that webhook and server know, or "".
func (h *hook) reviewVersion() string {
	at := slices.IndexFunc(h.AdmissionReviewVersions, func(v string) bool { return v == "v1" || v == "v1beta1" })
	if at < 0 {
		return ""
	}
	return h.AdmissionReviewVersions[at]
}

// question identifies a call. Everything else that the webhook sees follows from the request, the
// old object's version and the answers before.
func (a *attributes) question(i *invocation) webhook.Question {
	var old, created string
	if a.old != nil {
		old = a.old.GetName() + "/" + string(a.old.GetUID()) + "/" + a.old.GetResourceVersion()
	}
	if a.Object != nil {
		created = a.Object.GetName()
	}
	return webhook.Question(fmt.Sprint(i.hook.id, a.reinvoking, i.resource(), old, created))
}

// ask returns the error that makes the call. The review is encoded now, because the objects
// belong to the request.
func (p *Admission) ask(a *attributes, i *invocation, version string) error {
	uid := p.store.NewReviewUID()
	body, err := a.review(i, version, uid)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	timeout := time.Duration(*i.hook.TimeoutSeconds) * time.Second
	return p.webhooks.Ask(a.question(i), i.hook.ClientConfig, timeout, uid, version, body)
}

func (a *attributes) review(i *invocation, version string, uid types.UID) ([]byte, error) {
	request, err := a.admissionRequest(i, uid)
	if err != nil {
		return nil, err
	}
	return json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.GroupName + "/" + version, Kind: "AdmissionReview"}, Request: request,
	})
}

func (a *attributes) admissionRequest(i *invocation, uid types.UID) (*admissionv1.AdmissionRequest, error) {
	r, options := a.request, a.options
	kind := "CreateOptions"
	switch a.operation {
	case admissionv1.Update:
		kind = "UpdateOptions"
	case admissionv1.Delete:
		kind = "DeleteOptions"
	case admissionv1.Create, admissionv1.Connect:
	}
	options.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(kind))
	asked, kindOf := a.table.GVR(), metav1.GroupVersionKind(a.Codec.Kind)
	of := metav1.GroupVersionResource(i.resource())
	user := r.User()
	request := &admissionv1.AdmissionRequest{
		UID: uid, Kind: metav1.GroupVersionKind(i.codec.Kind), Resource: of, SubResource: r.Subresource,
		RequestKind: &kindOf, RequestResource: (*metav1.GroupVersionResource)(&asked), RequestSubResource: r.Subresource,
		Name: a.name, Namespace: a.namespace(), Operation: a.operation, UserInfo: user, DryRun: &r.DryRun,
	}
	var err error
	if request.Object, err = i.raw(i.object); err == nil {
		request.OldObject, err = i.raw(i.old)
	}
	if err != nil {
		return nil, err
	}
	request.Options.Raw, err = json.Marshal(options)
	return request, err
}

func (i *invocation) raw(u *unstructured.Unstructured) (runtime.RawExtension, error) {
	if u == nil {
		return runtime.RawExtension{}, nil
	}
	data, err := i.codec.Encode(u)
	return runtime.RawExtension{Raw: data}, err
}

// admissionResponse returns the response of an AdmissionReview. The server checks fewer fields of a
// v1beta1 review.
func admissionResponse(got webhook.Answer, mutates bool) (*admissionv1.AdmissionResponse, error) {
	review := &admissionv1.AdmissionReview{}
	if err := decodeReview(got, review); err != nil {
		return nil, fmt.Errorf("failed to call webhook: %w", err)
	}
	response := review.Response
	want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	json := admissionv1.PatchTypeJSONPatch
	var wrong string
	switch {
	case response == nil:
		wrong = "webhook response was absent"
	case got.Version == "v1beta1":
		response.PatchType = &json
	case response.UID != got.UID:
		wrong = fmt.Sprintf("expected response.uid=%q, got %q", got.UID, response.UID)
	case review.GroupVersionKind() != want:
		wrong = fmt.Sprintf("expected webhook response of %v, got %v", want, review.GroupVersionKind())
	case !mutates && len(response.Patch) > 0:
		wrong = "validating webhook may not return response.patch"
	case !mutates && response.PatchType != nil:
		wrong = "validating webhook may not return response.patchType"
	case len(response.Patch) > 0 && response.PatchType == nil:
		wrong = "webhook returned response.patch but not response.patchType"
	case len(response.Patch) == 0 && response.PatchType != nil:
		wrong = "webhook returned response.patchType but not response.patch"
	case response.PatchType != nil && *response.PatchType == "":
		wrong = fmt.Sprintf("webhook returned invalid response.patchType of %q", *response.PatchType)
	}
	if wrong != "" {
		return nil, errors.New("received invalid webhook response: " + wrong)
	}
	return response, nil
}

var reviews = sync.OnceValue(func() runtime.Codec {
	known := runtime.NewScheme()
	// They register their types; nothing can fail.
	_ = errors.Join(admissionv1.AddToScheme(known), admissionv1beta1.AddToScheme(known))
	return serializer.NewCodecFactory(known).LegacyCodec(admissionv1beta1.SchemeGroupVersion, admissionv1.SchemeGroupVersion)
})

// decodeReview decodes an AdmissionReview, with the errors of the real server.
func decodeReview(got webhook.Answer, into *admissionv1.AdmissionReview) error {
	if got.Version == "v1" {
		_, _, err := reviews().Decode(got.Body, nil, into)
		return err
	}
	old := &admissionv1beta1.AdmissionReview{}
	if _, _, err := reviews().Decode(got.Body, nil, old); err != nil || old.Response == nil {
		return err
	}
	data, err := json.Marshal(old.Response)
	if err != nil {
		return err
	}
	into.Response = &admissionv1.AdmissionResponse{}
	return json.Unmarshal(data, into.Response)
}
