// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestV1_OpenAPI reads documents like client-go, which follows the address with the hash.
func TestV1_OpenAPI(t *testing.T) {
	cfg := sim.New(t, gadgetScheme(t)).Config()
	c := testkit.Must(discovery.NewDiscoveryClientForConfig(cfg))
	root := openapi3.NewRoot(c.OpenAPIV3())
	testkit.AtLeast(t, len(testkit.Must(root.GroupVersions())), 20)
	doc := testkit.Must(root.GVSpec(schema.GroupVersion{Group: "apps", Version: "v1"}))
	deployment := doc.Components.Schemas["io.k8s.api.apps.v1.DeploymentSpec"]
	testkit.Equal(t, strings.Join(deployment.Required, " "), "selector template")
	testkit.NotEqual(t, deployment.Properties["replicas"].Description, "")
	testkit.Equal(t, deployment.Properties["replicas"].Format, "int32")
	containers := doc.Components.Schemas["io.k8s.api.core.v1.PodSpec"].Properties["containers"]
	key, _ := containers.Extensions.GetString("x-kubernetes-patch-merge-key")
	testkit.Equal(t, key, "name", "of the containers")
	doc = testkit.Must(root.GVSpec(schema.GroupVersion{Group: "test.dev", Version: "v1"}))
	if kind := doc.Components.Schemas["dev.test.v1.Gadget"]; kind == nil || kind.Extensions["x-kubernetes-preserve-unknown-fields"] != true {
		t.Errorf("a kind without a schema is %+v", kind)
	}
	testkit.NotEqual(t, testkit.Err(root.GVSpec(schema.GroupVersion{Group: "nosuch.dev", Version: "v1"})), nil)
}

// TestV1_OpenAPIFormats asks for forms and addresses of a document.
func TestV1_OpenAPIFormats(t *testing.T) {
	cfg := sim.New(t, runtime.NewScheme()).Config()
	const protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	for _, ask := range []struct {
		accept, query, contentType string
		code                       int
	}{
		{"", "", "application/json", http.StatusOK},
		{"application/json", "", "application/json", http.StatusOK},
		{protobuf, "", protobuf, http.StatusOK},
		{"application/com.github.proto-openapi.spec.v3@v1.0+protobuf", "", protobuf, http.StatusOK},
		{"text/css", "", "text/plain; charset=utf-8", http.StatusNotAcceptable},
		{"", "?hash=OLD", "text/html; charset=utf-8", http.StatusMovedPermanently},
	} {
		r := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+"/openapi/v3/apis/coordination.k8s.io/v1"+ask.query, http.NoBody))
		r.Header.Set("Accept", ask.accept)
		resp := testkit.Must(cfg.Transport.RoundTrip(r))
		resp.Body.Close()
		testkit.Equal(t, resp.StatusCode, ask.code, ask.accept, ask.query)
		testkit.Equal(t, resp.Header.Get("Content-Type"), ask.contentType, ask.accept, ask.query)
		to := resp.Header.Get("Location")
		testkit.Equal(t, strings.Contains(to, "/openapi/v3/apis/coordination.k8s.io/v1?hash="), ask.query != "", ask.query, "is now at", to)
	}
}

// TestOpenAPIV2_HasNoKinds: kubectl asks for it about a kind that is not served.
func TestOpenAPIV2_HasNoKinds(t *testing.T) {
	c := testkit.Must(discovery.NewDiscoveryClientForConfig(sim.New(t, runtime.NewScheme()).Config()))
	testkit.Len(t, testkit.Must(c.OpenAPISchema()).GetPaths().GetPath(), 0)
	data := testkit.Must(c.RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(t.Context()))
	testkit.Contains(t, string(data), `"paths":{}`)
}
