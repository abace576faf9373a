// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/codec"
)

// maxBody is the real server's limit of a request's body, in bytes.
const maxBody = 3 << 20

func (r *Request) read() error {
	if r.http.Body == nil || r.http.Body == http.NoBody {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r.http.Body, maxBody+1))
	if len(data) > maxBody {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	r.body = data
	return err
}

// mediaType returns the body's media type. Without a Content-Type it is JSON.
func (r *Request) mediaType() string {
	contentType := r.Header.Get("Content-Type")
	if contentType == "" || contentType == runtime.ContentTypeJSON {
		return runtime.ContentTypeJSON
	}
	if parsed, _, err := mime.ParseMediaType(contentType); err == nil {
		return parsed
	}
	return contentType
}

// decode reads the body as an object of the table's kind. Unknown and duplicate fields become
// warnings or an error.
func (r *Request) decode(t *table) (*unstructured.Unstructured, error) {
	u, err := r.decodeAs(t.codec())
	if err == nil && t.Schema != nil {
		t.Schema.Default(u)
	}
	return u, err
}

func (r *Request) decodeAs(c codec.Codec) (*unstructured.Unstructured, error) {
	switch r.mediaType() {
	case runtime.ContentTypeJSON, runtime.ContentTypeYAML:
	case runtime.ContentTypeProtobuf:
		if !c.Typed {
			return nil, unknownFormat()
		}
	default:
		if c.Typed {
			return nil, unknownFormat(runtime.ContentTypeProtobuf)
		}
		return nil, unknownFormat()
	}
	directive := r.Query.Get("fieldValidation")
	u, got, strict, err := c.Decode(r.mediaType(), r.body, directive != metav1.FieldValidationIgnore)
	if err == nil && len(strict) > 0 && directive == metav1.FieldValidationStrict {
		err = runtime.NewStrictDecodingError(strict)
	}
	switch {
	case err != nil:
		return nil, r.unrecognized(c, got, err)
	case got.GroupVersion() != c.Kind.GroupVersion():
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), c.Kind.GroupVersion()))
	}
	r.warnAll(strict)
	return u, nil
}

func unknownFormat(more ...string) error {
	accepted := append([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}, more...)
	return statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "))
}

func (r *Request) unrecognized(c codec.Codec, got *schema.GroupVersionKind, err error) error {
	if got != nil && got.Kind != "" {
		into := c.Kind.Kind
		if !c.Typed && runtime.IsStrictDecodingError(err) {
			into = got.Kind // the object that was read has no Go type, and its kind
		}
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, into, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", c.Kind.Kind, err, summary(r.body)))
}

// summary returns the beginning of a body: JSON as it is, everything else in hexadecimal digits.
func summary(data []byte) string {
	const most = 30
	if len(data) == 0 {
		return "<empty>"
	}
	short, dots := data, ""
	if len(data) > most {
		short, dots = data[:most], " ..."
	}
	if data[0] == '{' {
		return string(short) + dots
	}
	return hex.EncodeToString(short) + dots
}
