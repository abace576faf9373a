// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// conversionPath is the path of all conversions.
const conversionPath = "/convert"

// maxConversion is the limit of a request's body. A request has all objects of a list.
const maxConversion = 256 << 20

const (
	conversionVersion = "apiextensions.k8s.io/v1"
	conversionKind    = "ConversionReview"
)

// conversionReview is ConversionReview of apiextensions.k8s.io/v1.
type conversionReview struct {
	metav1.TypeMeta `json:",inline"`

	Request  *conversionRequest  `json:"request,omitempty"`
	Response *conversionResponse `json:"response,omitempty"`
}

type conversionRequest struct {
	UID               types.UID         `json:"uid"`
	DesiredAPIVersion string            `json:"desiredAPIVersion"`
	Objects           []json.RawMessage `json:"objects"`
}

type conversionResponse struct {
	UID              types.UID         `json:"uid"`
	ConvertedObjects []json.RawMessage `json:"convertedObjects"`
	Result           metav1.Status     `json:"result"`
}

// decodeConversion returns the request in a body, or one sentence about its mistake.
func decodeConversion(body []byte) (*conversionRequest, error) {
	var review conversionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, fmt.Errorf("the body is not a ConversionReview in JSON: %w", err)
	}
	switch {
	case review.APIVersion != conversionVersion || review.Kind != conversionKind:
		return nil, fmt.Errorf("the body is %q of %q, but this path is for %s of %s; set conversionReviewVersions to v1",
			review.Kind, review.APIVersion, conversionKind, conversionVersion)
	case review.Request == nil:
		return nil, errors.New("the ConversionReview has no request")
	case review.Request.UID == "":
		return nil, errors.New("the request of the ConversionReview has no uid")
	}
	return review.Request, nil
}

// reviewConversion answers a request. If one object fails, the answer has no objects and err names
// the object.
func (w *Webhooks) reviewConversion(ctx context.Context, r *conversionRequest) (answer *conversionReview, err error) {
	answer = &conversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: conversionVersion, Kind: conversionKind},
		Response: &conversionResponse{UID: r.UID, Result: metav1.Status{Status: metav1.StatusSuccess}},
	}
	converted := make([]json.RawMessage, 0, len(r.Objects))
	for _, object := range r.Objects {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if object, err = w.ConvertObject(object, r.DesiredAPIVersion); err == nil {
			converted = append(converted, object)
			continue
		}
		logFailedConversion(ctx, err)
		answer.Response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
		return answer, err
	}
	answer.Response.ConvertedObjects = converted
	return answer, nil
}

// logFailedConversion logs an error, with the stack of a panic.
func logFailedConversion(ctx context.Context, err error) {
	log := logr.FromContextAsSlogLogger(ctx)
	if log == nil {
		log = slog.Default()
	}
	args := []any{"err", err}
	var panicked *ConverterPanicError
	if errors.As(err, &panicked) {
		args = append(args, "stack", string(panicked.Stack))
	}
	log.ErrorContext(ctx, "a conversion failed", args...)
}
