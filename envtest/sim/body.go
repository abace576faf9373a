// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// decode reads a request's body: JSON, YAML or protobuf. It returns an empty object for no body.
func decode(h *http.Request) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if h.Body == nil {
		return u, nil
	}
	data, err := io.ReadAll(h.Body)
	if err != nil || len(data) == 0 {
		return u, err
	}
	if strings.HasPrefix(h.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		if err != nil {
			return nil, err
		}
		u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		return u, err
	}
	if data, err = yaml.YAMLToJSON(data); err != nil { // JSON is YAML
		return nil, err
	}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return nil, fmt.Errorf("sim supports merge patches and whole objects: %w", err)
	}
	return u, nil
}

// toUnstructured converts an API object to its stored form.
func toUnstructured(obj metav1.Object, in Resource) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u = u.DeepCopy()
	u.SetAPIVersion(in.gv().String())
	u.SetKind(in.Kind)
	if in.Namespaced == (u.GetNamespace() == "") {
		return nil, fmt.Errorf("sim: %s %q: a cluster-scoped object must not have a namespace, a namespaced one must", in.Kind, u.GetName())
	}
	return u, nil
}
