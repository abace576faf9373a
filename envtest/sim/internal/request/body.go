// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package request

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
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// maxBody is the real server's limit of a request's body, in bytes.
const maxBody = 3 << 20

func (r *Request) Read() error {
	if r.HTTP.Body == nil || r.HTTP.Body == http.NoBody {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r.HTTP.Body, maxBody+1))
	if len(data) > maxBody {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	r.Body = data
	return err
}

// MediaType returns the body's media type. Without a Content-Type it is JSON.
func (r *Request) MediaType() string {
	contentType := r.Header.Get("Content-Type")
	if contentType == "" || contentType == runtime.ContentTypeJSON {
		return runtime.ContentTypeJSON
	}
	if parsed, _, err := mime.ParseMediaType(contentType); err == nil {
		return parsed
	}
	return contentType
}

// Decode reads the body as an object of the table's kind. Unknown and duplicate fields become
// warnings or an error.
func (r *Request) Decode(t *store.Table) (*unstructured.Unstructured, error) {
	u, err := r.DecodeAs(t.Codec())
	if err == nil && t.Schema != nil {
		t.Schema.Default(u)
	}
	return u, err
}

// DecodeAs reads the body as an object of another kind than the resource.
func (r *Request) DecodeAs(c codec.Codec) (*unstructured.Unstructured, error) {
	switch r.MediaType() {
	case runtime.ContentTypeJSON, runtime.ContentTypeYAML:
	case runtime.ContentTypeProtobuf:
		if !c.Typed {
			return nil, UnknownFormat()
		}
	default:
		if c.Typed {
			return nil, UnknownFormat(runtime.ContentTypeProtobuf)
		}
		return nil, UnknownFormat()
	}
	directive := r.Query.Get("fieldValidation")
	u, got, strict, err := c.Decode(r.MediaType(), r.Body, directive != metav1.FieldValidationIgnore)
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
	r.WarnAll(strict)
	return u, nil
}

// UnknownFormat is the error for a body of an unknown media type.
func UnknownFormat(more ...string) error {
	accepted := append([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}, more...)
	return StatusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
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
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", c.Kind.Kind, err, summary(r.Body)))
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

// WarnAll adds a warning for each unknown or duplicate field.
func (r *Request) WarnAll(fields []error) {
	for _, e := range fields {
		text := e.Error()
		for _, prefix := range []string{"error converting YAML to JSON: yaml: unmarshal errors:\n", "yaml: unmarshal errors:\n"} {
			text = strings.TrimPrefix(text, prefix)
		}
		for _, line := range strings.Split(text, "\n") {
			r.Warn(strings.TrimSpace(line))
		}
	}
}
