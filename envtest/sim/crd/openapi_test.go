// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// compareOpenAPI compares the documents of the custom group: all paths, and the schemas of the
// custom kinds without descriptions. Of Kubernetes' own types only the names are compared.
func compareOpenAPI(t *testing.T, real, fake *rest.Config) {
	t.Helper()
	has, err := openAPIDocument(t, fake)
	testkit.NoError(t, err)
	var want any
	// It is published a while after the kind.
	for begin := time.Now(); time.Since(begin) < 15*time.Second; {
		if want, err = openAPIDocument(t, real); err == nil || !apierrors.IsNotFound(err) && !errors.As(err, new(*openapi3.GroupVersionNotFoundError)) {
			break
		}
	}
	testkit.NoError(t, err)
	if !reflect.DeepEqual(want, has) {
		t.Errorf("OpenAPI:\nreal %s\nsim  %s", text(want), text(has))
	}
}

// openAPIDocument returns the document of the custom group without descriptions.
func openAPIDocument(t *testing.T, cfg *rest.Config) (any, error) {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(cfg)
	testkit.NoError(t, err)
	doc, err := openapi3.NewRoot(c.OpenAPIV3()).GVSpec(schema.GroupVersion{Group: "crd.dev", Version: "v1"})
	if err != nil {
		return nil, err
	}
	for name := range doc.Components.Schemas {
		if strings.HasPrefix(name, "io.k8s.") {
			doc.Components.Schemas[name] = &spec.Schema{} // it has the version of the server
		}
	}
	var content any
	data, err := json.Marshal(doc)
	if err == nil {
		err = json.Unmarshal(data, &content)
	}
	return withoutDescriptions(content), err
}

func withoutDescriptions(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["description"].(string); ok {
			delete(v, "description")
		}
		for _, field := range v {
			withoutDescriptions(field)
		}
	case []any:
		for _, element := range v {
			withoutDescriptions(element)
		}
	}
	return v
}
