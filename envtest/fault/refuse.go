// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
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

// writeStatus answers with status in the client's preferred format.
func writeStatus(w http.ResponseWriter, accept string, status metav1.Status) {
	scheme := runtime.NewScheme()
	version := schema.GroupVersion{Version: "v1"}
	scheme.AddUnversionedTypes(version, &metav1.Status{})
	codecs := serializer.NewCodecFactory(scheme)
	format := negotiate(accept, codecs.SupportedMediaTypes())
	body, err := runtime.Encode(codecs.EncoderForVersion(format.Serializer, version), &status)
	if err != nil {
		http.Error(w, "fault: cannot encode Rule.Refuse: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	w.Header().Set("Content-Type", format.MediaType)
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body) // fails only if the client is gone
}

// negotiate returns the first known format in the Accept header, else JSON.
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
