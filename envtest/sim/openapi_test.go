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
)

// TestV1_OpenAPI reads documents like client-go, which follows the address with the hash.
func TestV1_OpenAPI(t *testing.T) {
	cfg := sim.New(t, gadgetScheme(t)).Config()
	c, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	root := openapi3.NewRoot(c.OpenAPIV3())
	versions, err := root.GroupVersions()
	if err != nil || len(versions) < 20 {
		t.Fatalf("%d group versions, %v", len(versions), err)
	}
	doc, err := root.GVSpec(schema.GroupVersion{Group: "apps", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	deployment := doc.Components.Schemas["io.k8s.api.apps.v1.DeploymentSpec"]
	if got := strings.Join(deployment.Required, " "); got != "selector template" {
		t.Errorf("a Deployment requires %q", got)
	}
	if got := deployment.Properties["replicas"]; got.Description == "" || got.Format != "int32" {
		t.Errorf("replicas: %+v", got)
	}
	containers := doc.Components.Schemas["io.k8s.api.core.v1.PodSpec"].Properties["containers"]
	if key, _ := containers.Extensions.GetString("x-kubernetes-patch-merge-key"); key != "name" {
		t.Errorf("containers are merged by %q", key)
	}
	if doc, err = root.GVSpec(schema.GroupVersion{Group: "test.dev", Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	if kind := doc.Components.Schemas["dev.test.v1.Gadget"]; kind == nil || kind.Extensions["x-kubernetes-preserve-unknown-fields"] != true {
		t.Errorf("a kind without a schema is %+v", kind)
	}
	if _, err := root.GVSpec(schema.GroupVersion{Group: "nosuch.dev", Version: "v1"}); err == nil {
		t.Error("there is a document of an unknown group")
	}
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
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+"/openapi/v3/apis/coordination.k8s.io/v1"+ask.query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", ask.accept)
		resp, err := cfg.Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != ask.code || resp.Header.Get("Content-Type") != ask.contentType {
			t.Errorf("%q %q: %d %s", ask.accept, ask.query, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		if to := resp.Header.Get("Location"); (ask.query != "") != strings.Contains(to, "/openapi/v3/apis/coordination.k8s.io/v1?hash=") {
			t.Errorf("%q is now at %q", ask.query, to)
		}
	}
}

// TestOpenAPIV2_HasNoKinds: kubectl asks for it about a kind that is not served.
func TestOpenAPIV2_HasNoKinds(t *testing.T) {
	c, err := discovery.NewDiscoveryClientForConfig(sim.New(t, runtime.NewScheme()).Config())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := c.OpenAPISchema()
	if err != nil || len(doc.GetPaths().GetPath()) > 0 {
		t.Errorf("%v, %v", doc, err)
	}
	data, err := c.RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(data), `"paths":{}`) {
		t.Errorf("%s, %v", data, err)
	}
}
