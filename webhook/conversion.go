// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

const conversionPath = "/convert"

const (
	conversionVersion = "apiextensions.k8s.io/v1"
	conversionKind    = "ConversionReview"
)

// conversionReview is the ConversionReview of apiextensions.k8s.io/v1.
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

func conversionIn(body []byte) (*conversionRequest, error) {
	var review conversionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, failuref(http.StatusBadRequest, "the body is not a ConversionReview in JSON: %v", err)
	}
	switch {
	case review.APIVersion != conversionVersion || review.Kind != conversionKind:
		return nil, failuref(http.StatusBadRequest, "the body is %q of %q, but this path is for %s of %s; set conversionReviewVersions to v1",
			review.Kind, review.APIVersion, conversionKind, conversionVersion)
	case review.Request == nil:
		return nil, failuref(http.StatusBadRequest, "the ConversionReview has no request")
	case review.Request.UID == "":
		return nil, failuref(http.StatusBadRequest, "the request of the ConversionReview has no uid")
	}
	return review.Request, nil
}

type converter struct {
	webhooks *Webhooks
	failures rate.Sometimes // limits log lines, because one bad object fails each list
}

func newConverter(w *Webhooks) *converter {
	return &converter{w, rate.Sometimes{First: 20, Interval: 10 * time.Second}}
}

// answer answers a ConversionReview. If one object fails, the answer has no objects.
func (c *converter) answer(ctx context.Context, body []byte) (*reply, error) {
	request, err := conversionIn(body)
	if err != nil {
		return nil, err
	}
	response := &conversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	re := &reply{allowed: true, review: &conversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: conversionVersion, Kind: conversionKind}, Response: response,
	}}
	response.ConvertedObjects, err = c.convertAll(ctx, request)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		c.failures.Do(func() { loggerOf(ctx).Error("a conversion failed", "err", err) })
		response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
		re.allowed, re.reason = false, "Failure"
	}
	return re, nil
}

func (c *converter) convertAll(ctx context.Context, r *conversionRequest) ([]json.RawMessage, error) {
	converted := make([]json.RawMessage, 0, len(r.Objects))
	for _, object := range r.Objects {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		object, err := c.webhooks.ConvertObject(ctx, object, r.DesiredAPIVersion)
		if err != nil {
			return nil, err
		}
		converted = append(converted, object)
	}
	return converted, nil
}
