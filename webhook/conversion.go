// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/internal/logging"
)

const conversionPath = "/convert"

// maxExpansion is how many bytes the answer to a small conversion may have. A conversion adds
// fields to an object, but the memory for an answer must have a limit.
const maxExpansion = 1 << 20

const (
	conversionVersion = "apiextensions.k8s.io/v1"
	conversionKind    = "ConversionReview"
)

// conversionReview is the ConversionReview of apiextensions.k8s.io/v1.
type conversionReview struct {
	metav1.TypeMeta `json:",inline"`

	Request *conversionRequest `json:"request"`
}

type conversionRequest struct {
	UID               types.UID `json:"uid"`
	DesiredAPIVersion string    `json:"desiredAPIVersion"`
	Objects           shared    `json:"objects"` // a list
}

func conversionIn(body []byte) (*conversionRequest, error) {
	var review conversionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, failuref(http.StatusBadRequest, "the body is not a ConversionReview in JSON: %v", err)
	}
	switch r := review.Request; {
	case review.APIVersion != conversionVersion || review.Kind != conversionKind:
		return nil, failuref(http.StatusBadRequest, "the body is %q of %q, but this path is for %s of %s; set conversionReviewVersions to v1",
			review.Kind, review.APIVersion, conversionKind, conversionVersion)
	case r == nil:
		return nil, failuref(http.StatusBadRequest, "the ConversionReview has no request")
	case r.UID == "":
		return nil, failuref(http.StatusBadRequest, "the request of the ConversionReview has no uid")
	case len(r.Objects) > 0 && r.Objects[0] != '[':
		return nil, failuref(http.StatusBadRequest, "the objects of the ConversionReview are not a list")
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
	// Strings can always be written.
	head, _ := encode(metav1.TypeMeta{APIVersion: conversionVersion, Kind: conversionKind})
	uid, _ := encode(request.UID)
	head = slices.Concat(head[:len(head)-1], []byte(`,"response":{"uid":`), uid, []byte(`,"convertedObjects":`))
	text := bytes.NewBuffer(make([]byte, 0, len(head)+len(request.Objects)+bytes.MinRead))
	text.Write(head)
	err = c.convertAll(ctx, request, text)
	re, result := &reply{allowed: err == nil}, metav1.Status{Status: metav1.StatusSuccess}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, errBusy):
		return nil, err
	case err != nil:
		c.failures.Do(func() { logging.Of(ctx).Error("a conversion failed", "err", err) })
		re.reason = "Failure"
		result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
		text = bytes.NewBuffer(head)
		text.WriteString("null")
	}
	status, _ := encode(result)
	text.WriteString(`,"result":`)
	text.Write(status)
	text.WriteString(`}}`)
	re.text = text.Bytes()
	return re, nil
}

// convertAll writes a list. It decodes one object at a time.
func (c *converter) convertAll(ctx context.Context, r *conversionRequest, to *bytes.Buffer) error {
	limit := to.Len() + 4*len(r.Objects) + maxExpansion
	to.WriteByte('[')
	first := true
	for element := range elements(r.Objects) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		object, err := c.webhooks.ConvertObject(ctx, element, r.DesiredAPIVersion)
		if err != nil {
			return err
		}
		if !first {
			to.WriteByte(',')
		}
		first = false
		if to.Len()+len(object) > limit {
			return failuref(http.StatusRequestEntityTooLarge, "the converted objects have more than %d bytes, the limit for a request of this size", limit)
		}
		to.Write(object)
	}
	to.WriteByte(']')
	return nil
}

// elements returns the elements of a list in valid JSON, without copies.
func elements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		depth, start := 0, 1
		for i := 0; i < len(list); i++ {
			switch list[i] {
			case '"':
				i = stringEnd(list, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			if end := depth == 0; end || depth == 1 && list[i] == ',' {
				element := bytes.TrimSpace(list[start:i])
				if len(element) > 0 && !yield(element) || end {
					return
				}
				start = i + 1
			}
		}
	}
}
