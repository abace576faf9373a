// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// maxPatchOperations is the number of operations that an API server accepts in a JSON patch.
const maxPatchOperations = 10000

// patch is a JSON, merge or strategic merge patch of an object, or an apply.
type patch struct {
	request *request.Request
	codec   codec.Codec
	options *metav1.PatchOptions
	strict  []error // unknown and duplicate fields in the patch itself
}

// patch answers a patch. live is nil if the object does not exist.
func (a *API) patch(r *request.Request, t *store.Table, live *unstructured.Unstructured) (*http.Response, error) {
	p, err := patchOf(r, t.Codec())
	if err != nil {
		return nil, err
	}
	u, err := a.patched(p, t, live)
	if err != nil {
		return nil, err
	}
	return a.write(r, t, live, u)
}

// patched returns what the patch makes of live.
func (a *API) patched(p *patch, t *store.Table, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	change := p.merged
	switch {
	case p.request.Verb == "apply" && (live != nil || p.request.Subresource == ""):
		change = func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return a.applied(p, t, live)
		}
	case live == nil:
		return nil, t.NotFound(p.request.Name)
	}
	u, err := change(live)
	if err != nil {
		return nil, err
	}
	if err := p.request.MatchNamespace(u); err != nil {
		return nil, err
	}
	return u, p.request.MatchName(u)
}

// patchOf returns the request's patch of an object of the codec's kind, if content type and options
// are valid.
func patchOf(r *request.Request, c codec.Codec) (*patch, error) {
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}
	if !c.Typed {
		accepted = slices.Delete(accepted, 2, 3)
	}
	kind := patchType(r)
	if !slices.Contains(accepted, string(kind)) {
		return nil, unsupportedPatch(c, accepted)
	}
	p := &patch{request: r, codec: c, options: &metav1.PatchOptions{}}
	if err := internalscheme.ParameterCodec.DecodeParameters(r.Query, metav1.SchemeGroupVersion, p.options); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidatePatchOptions(p.options, kind); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "", errs)
	}
	r.DryRun, r.Manager = len(p.options.DryRun) > 0, p.options.FieldManager
	return p, p.isJSON()
}

// isJSON checks the patch before the object is read, as the real server does for its audit log.
func (p *patch) isJSON() error {
	if patchType(p.request) == types.ApplyYAMLPatchType {
		if _, err := utilyaml.ToJSON(p.request.Body); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("error encoding patch: %v", err))
		}
		return nil
	}
	if !json.Valid(p.request.Body) {
		return apierrors.NewBadRequest("invalid JSON patch")
	}
	return nil
}

func patchType(r *request.Request) types.PatchType {
	name, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return types.PatchType(name)
}

// unsupportedPatch is the answer to an unknown content type. The router of built-in kinds has a
// message of its own.
func unsupportedPatch(c codec.Codec, accepted []string) error {
	s := metav1.Status{Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType}
	if c.Typed {
		s.Message, s.Details = "415: Unsupported Media Type", &metav1.StatusDetails{}
	} else {
		s.Message = "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", ")
	}
	return &apierrors.StatusError{ErrStatus: s}
}

func (p *patch) merged(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if patchType(p.request) == types.StrategicMergePatchType {
		return p.strategic(old)
	}
	before, err := p.codec.Encode(old)
	if err != nil {
		return nil, err
	}
	change := p.merge
	if patchType(p.request) == types.JSONPatchType {
		change = p.operate
	}
	after, err := change(before)
	if err != nil {
		return nil, err
	}
	u, _, strict, err := p.codec.Decode(runtime.ContentTypeJSON, after, p.looksAtFields())
	if err != nil {
		return nil, invalidPatch(string(after), err)
	}
	return u, p.report(string(after), strict)
}

func (p *patch) merge(before []byte) ([]byte, error) {
	if err := p.check(&map[string]any{}, ""); err != nil {
		return nil, err
	}
	after, err := jsonpatch.MergePatch(before, p.request.Body)
	if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return after, err
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

func (p *patch) operate(before []byte) ([]byte, error) {
	if err := p.check(&[]operation{}, "json patch "); err != nil {
		return nil, err
	}
	operations, err := jsonpatch.DecodePatch(p.request.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(operations) > maxPatchOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(operations)))
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, unprocessable(err)
	}
	return after, nil
}

// check records unknown and duplicate fields of the patch, which has the shape of into.
func (p *patch) check(into any, prefix string) error {
	if !p.looksAtFields() {
		return nil
	}
	strict, err := kjson.UnmarshalStrict(p.request.Body, into)
	if err != nil {
		text := strings.ReplaceAll(err.Error(), "[]verbs.operation", "[]handlers.jsonPatchOp")
		text = strings.ReplaceAll(text, "verbs.operation", "handlers.jsonPatchOp")
		return apierrors.NewBadRequest("error decoding patch: " + strings.ReplaceAll(text, "struct field operation.", "struct field jsonPatchOp."))
	}
	for _, e := range strict {
		p.strict = append(p.strict, errors.New(prefix+e.Error()))
	}
	return nil
}

func (p *patch) strategic(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	change := map[string]any{}
	var err error
	if p.looksAtFields() {
		p.strict, err = kjson.UnmarshalStrict(p.request.Body, &change)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(p.request.Body, &change)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	into, err := kinds.Scheme().New(p.codec.Kind)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergeMapPatch(old.DeepCopy().Object, change, into)
	if err != nil {
		return nil, strategicError(err)
	}
	value := fmt.Sprintf("%+v", change)
	var strict []error
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(after, into, p.looksAtFields()); err != nil {
		fields, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			return nil, invalidPatch(value, err)
		}
		strict = fields.Errors()
	}
	if err := p.report(value, strict); err != nil {
		return nil, err
	}
	return p.codec.Stored(into)
}

func strategicError(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return unprocessable(err)
	}
	return err
}

func (p *patch) looksAtFields() bool {
	return p.options.FieldValidation != metav1.FieldValidationIgnore
}

// report turns unknown and duplicate fields into warnings or, with Strict, into an error.
func (p *patch) report(value string, strict []error) error {
	strict = append(p.strict, strict...)
	if len(strict) > 0 && p.options.FieldValidation == metav1.FieldValidationStrict {
		return invalidPatch(value, runtime.NewStrictDecodingError(strict))
	}
	p.request.WarnAll(strict)
	return nil
}

func invalidPatch(value string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), value, err.Error())})
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}
