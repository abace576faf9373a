// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		method, url string
		want        Request
	}{
		{"GET", "/api/v1/pods", Request{Verb: "list", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/namespaces/ns/pods", Request{Verb: "list", Version: "v1", Resource: "pods", Namespace: "ns"}},
		{"HEAD", "/api/v1/namespaces/ns/pods/p", Request{Verb: "get", Version: "v1", Resource: "pods", Namespace: "ns", Name: "p"}},
		{"GET", "/api/v1/pods?watch=true", Request{Verb: "watch", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch=1", Request{Verb: "watch", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch", Request{Verb: "watch", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch=False", Request{Verb: "list", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/pods?watch=0", Request{Verb: "list", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/namespaces/ns/pods/p?watch=true", Request{Verb: "get", Version: "v1", Resource: "pods", Namespace: "ns", Name: "p"}},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp&watch=true", Request{Verb: "watch", Version: "v1", Resource: "pods", Name: "p"}},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%21%3Dp", Request{Verb: "list", Version: "v1", Resource: "pods"}},
		{"GET", "/api/v1/watch/namespaces/ns/pods", Request{Verb: "watch", Version: "v1", Resource: "pods", Namespace: "ns"}},
		{"POST", "/apis/apps/v1/namespaces/ns/deployments", Request{Verb: "create", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "ns"}},
		{"PUT", "/apis/apps/v1/namespaces/ns/deployments/d/status", Request{Verb: "update", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "ns", Name: "d", Subresource: "status"}},
		{"PATCH", "/apis/a.dev/v1/things/x", Request{Verb: "patch", Group: "a.dev", Version: "v1", Resource: "things", Name: "x"}},
		{"DELETE", "/apis/a.dev/v1/things/x", Request{Verb: "delete", Group: "a.dev", Version: "v1", Resource: "things", Name: "x"}},
		{"DELETE", "/apis/a.dev/v1/things", Request{Verb: "deletecollection", Group: "a.dev", Version: "v1", Resource: "things"}},
		{"GET", "/api/v1/namespaces", Request{Verb: "list", Version: "v1", Resource: "namespaces"}},
		{"GET", "/api/v1/namespaces/ns", Request{Verb: "get", Version: "v1", Resource: "namespaces", Namespace: "ns", Name: "ns"}},
		{"PUT", "/api/v1/namespaces/ns/finalize", Request{Verb: "update", Version: "v1", Resource: "namespaces", Namespace: "ns", Name: "ns", Subresource: "finalize"}},
		{"GET", "/api/v1/namespaces/ns/services/s/proxy/a/b", Request{Verb: "get", Version: "v1", Resource: "services", Namespace: "ns", Name: "s", Subresource: "proxy"}},
		{"GET", "/api/v1", Request{Verb: "get"}},
		{"GET", "/apis/apps/v1", Request{Verb: "get"}},
		{"GET", "/openapi/v3/apis/apps/v1", Request{Verb: "get"}},
		{"POST", "/", Request{Verb: "post"}},
	} {
		got := parse(httptest.NewRequest(c.method, c.url, nil))
		if [7]string{got.Verb, got.Group, got.Version, got.Resource, got.Subresource, got.Namespace, got.Name} !=
			[7]string{c.want.Verb, c.want.Group, c.want.Version, c.want.Resource, c.want.Subresource, c.want.Namespace, c.want.Name} {
			t.Errorf("%s %s is %+v, want %+v", c.method, c.url, got, c.want)
		}
	}
}

func TestMatch(t *testing.T) {
	h := httptest.NewRequest(http.MethodPut, "/apis/apps/v1/namespaces/ns/deployments/d/status", nil)
	h.Header.Set("User-Agent", "website-operator/v1 (linux)")
	h.Header.Set("Authorization", "Bearer secret")
	status := parse(h)
	list := parse(httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
	version := parse(httptest.NewRequest(http.MethodGet, "/version", nil))
	never := func(*Request) bool { return false }
	for i, c := range []struct {
		match                 Match
		status, list, version bool
	}{
		{Match{}, true, true, true},
		{Match{Verbs: []string{"get", "update"}}, true, false, true},
		{Match{Groups: []string{"apps"}}, true, false, false},
		{Match{Groups: []string{""}}, false, true, false},
		{Match{Resources: []string{"deployments", "pods"}}, false, true, false},
		{Match{Resources: []string{"deployments/status"}}, true, false, false},
		{Match{Resources: []string{"deployments/*"}}, true, false, false},
		{Match{Resources: []string{"pods/*"}}, false, false, false},
		{Match{Resources: []string{"*"}}, false, true, false},
		{Match{Resources: []string{"*/status"}}, true, false, false},
		{Match{Resources: []string{""}}, false, false, false},
		{Match{Namespace: "ns"}, true, false, false},
		{Match{Name: "d"}, true, false, false},
		{Match{UserAgent: "operator"}, true, false, false},
		{Match{Config: &rest.Config{BearerToken: "secret"}}, true, false, false},
		{Match{Config: &rest.Config{BearerToken: "other"}}, false, false, false},
		{Match{Config: &rest.Config{}}, false, false, false},
		{Match{Func: never}, false, false, false},
		{Match{Func: func(r *Request) bool { return r.Name == "" }}, false, true, true},
	} {
		for _, one := range []struct {
			request Request
			want    bool
		}{{status, c.status}, {list, c.list}, {version, c.version}} {
			testkit.Equal(t, c.match.matches(one.request), one.want, i, fmt.Sprintf("%s %s matches", one.request.Verb, one.request.Path))
		}
	}
}
