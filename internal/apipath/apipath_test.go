// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package apipath_test

import (
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/apipath"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for _, c := range []struct {
		method, url string
		want        apipath.Target
	}{
		{"GET", "/api/v1/pods", apipath.Target{Verb: "list", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/namespaces/ns/pods/", apipath.Target{Verb: "list", Version: "v1", Resource: "pods", Namespace: "ns"}},
		{"HEAD", "/api/v1/namespaces/ns/pods/p", apipath.Target{Verb: "get", Version: "v1", Resource: "pods", Namespace: "ns", Name: "p"}},
		{"GET", "/api/v1/pods?watch=true", apipath.Target{Verb: "watch", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch=1", apipath.Target{Verb: "watch", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch", apipath.Target{Verb: "watch", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?w%61tch=1", apipath.Target{Verb: "watch", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch=False", apipath.Target{Verb: "list", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch=0", apipath.Target{Verb: "list", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/namespaces/ns/pods/p?watch=true", apipath.Target{Verb: "get", Version: "v1", Resource: "pods", Namespace: "ns", Name: "p"}},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp&watch=true", apipath.Target{Verb: "watch", Version: "v1", Resource: "pods", Name: "p"}},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%21%3Dp", apipath.Target{Verb: "list", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/watch/namespaces/ns/pods", apipath.Target{Verb: "watch", Version: "v1", Resource: "pods", Namespace: "ns"}},
		{"GET", "/api/v1/watch/namespaces/ns/pods/p", apipath.Target{Verb: "watch", Version: "v1", Resource: "pods", Namespace: "ns", Name: "p"}},
		{"DELETE", "/api/v1/watch/pods", apipath.Target{Verb: "watch", Version: "v1", Resource: "pods"}},
		{"POST", "/api/v1/proxy/namespaces/ns/services/s/a/b", apipath.Target{Verb: "proxy", Version: "v1", Resource: "services", Namespace: "ns", Name: "s"}},
		{"GET", "/apis/a.dev/v1/watch", apipath.Target{Verb: "list", Group: "a.dev", Version: "v1", Resource: "watch"}},
		{"POST", "/apis/apps/v1/namespaces/ns/deployments", apipath.Target{Verb: "create", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "ns"}},
		{"PUT", "/apis/apps/v1/namespaces/ns/deployments/d/status", apipath.Target{Verb: "update", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "ns", Name: "d", Subresource: "status"}},
		{"PUT", "/apis/apps/v1/namespaces/ns/deployments/status", apipath.Target{Verb: "update", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "ns", Name: "status"}},
		{"PATCH", "/api/v1/namespaces/status/pods/scale", apipath.Target{Verb: "patch", Version: "v1", Resource: "pods", Namespace: "status", Name: "scale"}},
		{"PATCH", "/apis/a.dev/v1/things/x", apipath.Target{Verb: "patch", Group: "a.dev", Version: "v1", Resource: "things", Name: "x"}},
		{"DELETE", "/apis/a.dev/v1/things/x", apipath.Target{Verb: "delete", Group: "a.dev", Version: "v1", Resource: "things", Name: "x"}},
		{"DELETE", "/apis/a.dev/v1/things", apipath.Target{Verb: "deletecollection", Group: "a.dev", Version: "v1", Resource: "things"}},
		{"DELETE", "/apis/a.dev/v1/namespaces/ns/things?fieldSelector=metadata.name%3Dp", apipath.Target{Verb: "deletecollection", Group: "a.dev", Version: "v1", Resource: "things", Namespace: "ns"}},
		{"GET", "/api/v1/namespaces", apipath.Target{Verb: "list", Version: "v1", Resource: "namespaces"}},
		{"GET", "/api/v1/namespaces/ns", apipath.Target{Verb: "get", Version: "v1", Resource: "namespaces", Namespace: "ns", Name: "ns"}},
		{"PUT", "/api/v1/namespaces/ns/finalize", apipath.Target{Verb: "update", Version: "v1", Resource: "namespaces", Namespace: "ns", Name: "ns", Subresource: "finalize"}},
		{"GET", "/api/v1/namespaces/ns/services/s/proxy/a/b", apipath.Target{Verb: "get", Version: "v1", Resource: "services", Namespace: "ns", Name: "s", Subresource: "proxy"}},
		{"OPTIONS", "/api/v1/pods", apipath.Target{Version: "v1", Resource: "pods"}},
		{"GET", "/api", apipath.Target{Verb: "get"}},
		{"GET", "/api/v1", apipath.Target{Verb: "get"}},
		{"GET", "/apis/apps/v1", apipath.Target{Verb: "get"}},
		{"GET", "/openapi/v3/apis/apps/v1", apipath.Target{Verb: "get"}},
		{"POST", "/", apipath.Target{Verb: "post"}},
	} {
		u := httptest.NewRequest(c.method, c.url, nil).URL
		testkit.Equal(t, apipath.Parse(c.method, u.Path, u.RawQuery), c.want, c.method, c.url)
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		apipath.Parse("PUT", "/apis/apps/v1/namespaces/ns/deployments/d/status", "fieldManager=x")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("GET", "/api/v1/namespaces/ns/pods/p/status", "watch=1")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		if got := apipath.Parse(method, path, query); got.Resource == "" && (got.Name != "" || got.Group != "") {
			t.Errorf("%s %s?%s is %+v", method, path, query, got)
		}
	})
}
