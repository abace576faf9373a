// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

var errUpgrade = &apierrors.StatusError{ErrStatus: metav1.Status{
	Code:    http.StatusNotImplemented,
	Message: "the fault proxy does not support upgraded connections (exec, attach, port-forward); connect to the API server directly",
}}

func statusAnswer(h *http.Request, status metav1.Status) *http.Response {
	if status.Code < 400 || status.Code > 599 {
		status.Code = http.StatusInternalServerError
	}
	status.Status = metav1.StatusFailure
	scheme := runtime.NewScheme()
	version := schema.GroupVersion{Version: "v1"}
	scheme.AddUnversionedTypes(version, &metav1.Status{})
	codecs := serializer.NewCodecFactory(scheme)
	format := negotiate(h.Header.Get("Accept"), codecs.SupportedMediaTypes())
	header := http.Header{"Content-Type": {format.MediaType}}
	body, err := runtime.Encode(codecs.EncoderForVersion(format.Serializer, version), &status)
	if err != nil {
		body = []byte("fault: cannot encode Rule.Refuse: " + err.Error())
		header.Set("Content-Type", "text/plain")
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	return &http.Response{
		Status: strconv.Itoa(int(status.Code)) + " " + http.StatusText(int(status.Code)), StatusCode: int(status.Code),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: h,
	}
}

func negotiate(accept string, formats []runtime.SerializerInfo) runtime.SerializerInfo {
	for _, wanted := range strings.Split(accept, ",") {
		mediaType, _, err := mime.ParseMediaType(wanted)
		if err != nil {
			continue
		}
		if format, ok := runtime.SerializerInfoForMediaType(formats, mediaType); ok {
			return format
		}
	}
	format, _ := runtime.SerializerInfoForMediaType(formats, runtime.ContentTypeJSON)
	return format
}
