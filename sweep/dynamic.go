// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// newDynamic returns a client for objects of all kinds. The one of dynamic.NewForConfig decodes
// each kind named Status, in any group, as metav1.Status.
func newDynamic(cfg *rest.Config) (dynamic.Interface, error) {
	cfg = dynamic.ConfigFor(cfg)
	cfg.NegotiatedSerializer = custom{cfg.NegotiatedSerializer}
	cfg.APIPath = "/" // each request has a whole path
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	c, err := rest.UnversionedRESTClientForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	return dynamic.New(c), nil
}

// custom decodes kinds of named groups by their content alone.
type custom struct{ runtime.NegotiatedSerializer }

func (s custom) DecoderToVersion(d runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return customDecoder{s.NegotiatedSerializer.DecoderToVersion(d, version)}
}

type customDecoder struct{ runtime.Decoder }

func (d customDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if gvk, err := json.DefaultMetaFactory.Interpret(data); err == nil && gvk.Group != "" {
		return unstructured.UnstructuredJSONScheme.Decode(data, defaults, into)
	}
	return d.Decoder.Decode(data, defaults, into)
}
