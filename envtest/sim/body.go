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
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// maxBody is the real server's limit of a request's body, in bytes.
const maxBody = 3 << 20

// read reads the body, once.
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

// decode reads the body as an object of the table's kind.
func (r *Request) decode(t *table) (*unstructured.Unstructured, error) {
	if t.builtIn {
		return r.decodeTyped(t)
	}
	return r.decodeCustom(t)
}

// decodeTyped reads the body as the Go type of a built-in kind. That drops unknown fields and finds
// fields of a wrong type, as in the real server.
func (r *Request) decodeTyped(t *table) (*unstructured.Unstructured, error) {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), r.mediaType())
	if !ok || info.MediaType == runtime.ContentTypeCBOR {
		return nil, unknownFormat(runtime.ContentTypeProtobuf)
	}
	want := t.gvk()
	obj, got, err := info.Serializer.Decode(r.body, &want, nil)
	if err != nil {
		return nil, r.unrecognized(t, got, err)
	}
	if got.Kind != t.Kind {
		return nil, r.unrecognized(t, got, fmt.Errorf("converting (%T) to (core.%s): unknown conversion", obj, t.Kind))
	}
	if got.GroupVersion() != t.gv() {
		return nil, t.wrongVersion(got.GroupVersion().String())
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(want)
	return u, nil
}

// decodeCustom reads the body as JSON or YAML.
func (r *Request) decodeCustom(t *table) (*unstructured.Unstructured, error) {
	data := r.body
	switch r.mediaType() {
	case runtime.ContentTypeJSON:
	case runtime.ContentTypeYAML, "application/apply-patch+yaml":
		var err error
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return nil, r.unrecognized(t, nil, err)
		}
	default:
		return nil, unknownFormat()
	}
	obj, got, err := unstructured.UnstructuredJSONScheme.Decode(data, nil, nil)
	if err != nil {
		return nil, r.unrecognized(t, got, err)
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, r.unrecognized(t, got, fmt.Errorf("a list is not an object"))
	}
	if got.GroupVersion() != t.gv() {
		return nil, t.wrongVersion(got.GroupVersion().String())
	}
	if t.schema != nil {
		t.schema.Default(u)
	}
	return u, nil
}

func (t *table) wrongVersion(has string) error {
	return apierrors.NewBadRequest(fmt.Sprintf(
		"the API version in the data (%s) does not match the expected API version (%s)", has, t.gv()))
}

func unknownFormat(more ...string) error {
	accepted := append([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}, more...)
	return statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "))
}

// unrecognized is the error for a body that does not decode.
func (r *Request) unrecognized(t *table, got *schema.GroupVersionKind, err error) error {
	if got != nil && got.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, t.Kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", t.Kind, err, summary(r.body)))
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

// normal returns a copy of an object in the form in which its kind is stored: of a built-in kind,
// that of its Go type, and of another one, JSON with integers.
func normal(of Resource, content map[string]any) (map[string]any, error) {
	obj, err := scheme.Scheme.New(of.gvk())
	if err != nil {
		data, err := json.Marshal(content)
		if err == nil {
			content = nil
			err = json.Unmarshal(data, &content)
		}
		return content, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// toUnstructured converts an API object to its stored form.
func toUnstructured(obj metav1.Object, in Resource) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	if content, err = normal(in, content); err == nil {
		u.Object = content
	} else { // stored as it is: tests want broken objects, too
		u = u.DeepCopy()
	}
	u.SetAPIVersion(in.gv().String())
	u.SetKind(in.Kind)
	if in.Namespaced == (u.GetNamespace() == "") {
		return nil, fmt.Errorf("sim: %s %q: a cluster-scoped object must not have a namespace, a namespaced one must", in.Kind, u.GetName())
	}
	return u, nil
}
