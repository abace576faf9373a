// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"mime"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/peek"
)

// wanted says whether the origin asks for the object that a request has written. It is asked only where the answer is that
// object: many subresources have kinds of their own.
func (e *exchange) wanted() bool {
	switch e.record.Subresource {
	case "", "status", "finalize", "approval", "ephemeralcontainers", "resize":
	default:
		return false
	}
	ask := e.ledger.origin.Decode
	return ask != nil && e.record.Verb != "deletecollection" && ask(schema.GroupResource{Group: e.record.Group, Resource: e.record.Resource})
}

// decoded returns the object in a whole answer, or nil.
func (a *answer) decoded(data []byte, kind string) runtime.Object {
	if kind == "Table" || kind == "PartialObjectMetadata" {
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(a.contentType)
	if err != nil {
		return nil
	}
	if info, ok := runtime.SerializerInfoForMediaType(a.codecs.SupportedMediaTypes(), mediaType); ok {
		if obj, _, err := info.Serializer.Decode(data, nil, nil); err == nil {
			return obj
		}
	}
	if a.format == peek.JSON {
		if obj, _, err := unstructured.UnstructuredJSONScheme.Decode(data, nil, nil); err == nil {
			return obj
		}
	}
	return nil
}
