// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"mime"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/setpoint-dev/setpoint/internal/wire"
	"github.com/setpoint-dev/setpoint/ledger"
)

// wanted reports whether the origin asks for the object that a request has written. It is asked only
// where the answer is that object: many subresources have kinds of their own.
func wanted(l *ledger.Ledger, r *ledger.Request) bool {
	switch r.Subresource {
	case "", "status", "finalize", "approval", "ephemeralcontainers", "resize":
	default:
		return false
	}
	ask := l.Origin().Decode
	return ask != nil && r.Verb != "deletecollection" && ask(schema.GroupResource{Group: r.Group, Resource: r.Resource})
}

// decode returns the object in a whole answer, or nil.
func decode(codecs serializer.CodecFactory, f wire.Format, contentType string, data []byte, kind string) runtime.Object {
	var into runtime.Object // where the scheme does not say
	switch kind {
	case "Table":
		return nil
	case "PartialObjectMetadata":
		into = &metav1.PartialObjectMetadata{}
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil
	}
	if info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType); ok {
		if obj, _, err := info.Serializer.Decode(data, nil, into); err == nil && isObject(obj) {
			return obj
		}
	}
	if f == wire.JSON {
		if obj, _, err := unstructured.UnstructuredJSONScheme.Decode(data, nil, nil); err == nil && isObject(obj) {
			return obj
		}
	}
	return nil
}

// isObject is false for what has an object somewhere inside, such as a Table.
func isObject(obj runtime.Object) bool {
	o, ok := obj.(metav1.Object)
	return ok && o.GetUID() != ""
}
