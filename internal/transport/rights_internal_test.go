// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/rbac"
)

// texts returns the rights in words.
func texts(rules []rbac.Rule) (all []string) {
	for _, r := range rules {
		all = append(all, r.String())
	}
	return all
}

// asked is a transport that answers with a status.
type asked struct {
	status int
	text   string
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.text)), Request: r}, nil
}

func newTransport(status int) (*roundTripper, *asked) {
	base := &asked{status, ""}
	return &roundTripper{base: base, server: serverAt(&url.URL{Scheme: "https", Host: "x.test"})}, base
}

func (t *roundTripper) do(tb testing.TB, method, path string) {
	tb.Helper()
	contentType := "application/json"
	if method == "APPLY" {
		method, contentType = "PATCH", "application/apply-patch+yaml"
	}
	req, err := http.NewRequestWithContext(context.Background(), method, "https://x.test"+path, http.NoBody)
	testkit.NoError(tb, err)
	req.Header.Set("Content-Type", contentType)
	resp, err := t.RoundTrip(req)
	testkit.NoError(tb, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

func TestRights_OfRequests(t *testing.T) {
	const leases, maps = "/apis/coordination.k8s.io/v1/namespaces/system/leases", "/api/v1/namespaces/%s/configmaps"
	var many []string
	for i := range mostNamespaces + 1 {
		many = append(many, "200 DELETE "+fmt.Sprintf(maps, fmt.Sprint("n", i))+"/x")
	}
	for name, test := range map[string]struct {
		text          string   // of the answers
		do            []string // STATUS METHOD PATH, with APPLY for a patch that applies
		used, refused []string
	}{
		"verbs of a resource": {
			do:   []string{"200 GET /api/v1/pods", "200 GET /api/v1/pods?watch=true", "200 GET /api/v1/pods", "200 GET /api/v1/nodes"},
			used: []string{"list nodes", "list, watch pods"},
		},
		"one namespace and its names": {
			do: []string{
				"200 GET " + leases + "/a", "200 PUT " + leases + "/a", "200 GET " + leases + "/b",
				"200 GET " + leases + "?watch=true&fieldSelector=metadata.name%3Da", "201 POST " + leases,
			},
			used: []string{
				"create leases.coordination.k8s.io in system", "update, watch leases.coordination.k8s.io a in system",
				"get leases.coordination.k8s.io a, b in system",
			},
		},
		"many names": {
			do:   []string{"200 GET " + leases + "/a", "200 GET " + leases + "/b", "200 GET " + leases + "/c", "200 GET " + leases + "/d"},
			used: []string{"get leases.coordination.k8s.io in system"},
		},
		"several namespaces": {
			do:   []string{"200 DELETE " + fmt.Sprintf(maps, "a") + "/x", "200 DELETE " + fmt.Sprintf(maps, "b") + "/x"},
			used: []string{"delete configmaps x in a", "delete configmaps x in b"},
		},
		"subresources": {
			do:   []string{"200 PUT " + fmt.Sprintf(maps, "a") + "/x/status"},
			used: []string{"update configmaps/status x in a"},
		},
		"a patch that creates": {
			do:   []string{"201 PATCH " + fmt.Sprintf(maps, "a") + "/x", "200 PATCH " + fmt.Sprintf(maps, "a") + "/y"},
			used: []string{"create configmaps x in a", "patch configmaps x, y in a"},
		},
		"a patch that creates nothing": {
			do:   []string{"200 PATCH " + fmt.Sprintf(maps, "a") + "/x", "200 PATCH " + fmt.Sprintf(maps, "a") + "/x/status"},
			used: []string{"patch configmaps x in a", "patch configmaps/status x in a"},
		},
		"too many namespaces": {do: many, used: []string{"delete configmaps"}},
		"refused": {
			do:      []string{"403 GET /api/v1/pods", "403 PATCH " + fmt.Sprintf(maps, "a") + "/x", "403 DELETE " + fmt.Sprintf(maps, "a") + "/x"},
			used:    []string{"list pods", "delete, patch configmaps x in a"},
			refused: []string{"list pods", "delete, patch configmaps x in a"},
		},
		"a refused apply": {
			text:    `{"message":"configmaps \"x\" is forbidden: User \"u\" cannot patch resource \"configmaps\" in API group"}`,
			do:      []string{"403 APPLY " + fmt.Sprintf(maps, "a") + "/x", "403 APPLY " + fmt.Sprintf(maps, "a") + "/x/status"},
			used:    []string{"create, patch configmaps x in a", "patch configmaps/status x in a"},
			refused: []string{"create, patch configmaps x in a", "patch configmaps/status x in a"},
		},
		"a refused merge patch creates nothing": {
			text:    "User u cannot patch resource configmaps",
			do:      []string{"403 PATCH " + fmt.Sprintf(maps, "a") + "/x"},
			used:    []string{"patch configmaps x in a"},
			refused: []string{"patch configmaps x in a"},
		},
		"admission refuses an apply": {
			text:    "exceeded quota: q",
			do:      []string{"403 APPLY " + fmt.Sprintf(maps, "a") + "/x"},
			used:    []string{"patch configmaps x in a"},
			refused: []string{"patch configmaps x in a"}, // a review finds it granted
		},
		"granted later": {
			do:      []string{"403 DELETE " + fmt.Sprintf(maps, "a") + "/x", "200 DELETE " + fmt.Sprintf(maps, "b") + "/x", "403 GET /api/v1/pods", "200 GET /api/v1/pods"},
			used:    []string{"delete configmaps x in a", "delete configmaps x in b", "list pods"},
			refused: []string{"delete configmaps x in a"},
		},
		"what every user may": {
			do: []string{"200 GET /version", "200 GET /apis/apps/v1", "201 POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rt, base := newTransport(200)
			base.text = test.text
			for _, do := range test.do {
				parts := strings.SplitN(do, " ", 3)
				fmt.Sscan(parts[0], &base.status)
				rt.do(t, parts[1], parts[2])
			}
			used, refused := Rights(rt)
			got := [2][]string{texts(used), texts(refused)}
			for i, want := range [2][]string{test.used, test.refused} {
				slices.Sort(want)
				slices.Sort(got[i])
				testkit.SlicesEqual(t, got[i], want)
			}
		})
	}
}

func TestRights_AreLimited(t *testing.T) {
	rt, _ := newTransport(200)
	for i := range 2 * mostRights {
		rt.do(t, "GET", fmt.Sprintf("/apis/g/v1/r%d", i))
	}
	used, _ := Rights(rt)
	testkit.Equal(t, len(used), mostRights, "rights are kept")
}

func TestRights_OfConcurrentRequests(t *testing.T) {
	rt, _ := newTransport(200)
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for n := range 100 {
				rt.do(t, "GET", fmt.Sprintf("/api/v1/namespaces/a/r%d/name%d", n, i%2))
			}
		})
	}
	running.Wait()
	used, _ := Rights(rt)
	for _, r := range used {
		if len(used) != 100 || !slices.Equal(r.Names, []string{"name0", "name1"}) || r.Namespace != "a" {
			t.Fatalf("%d rights, one is %s", len(used), r.String())
		}
	}
}

// BenchmarkRights prints what a request costs with and without the record of its right, in the same
// run, if the program has used 60 rights.
func BenchmarkRights(b *testing.B) {
	rt, base := newTransport(200)
	for i := range 60 {
		rt.do(b, "GET", fmt.Sprintf("/apis/g%d/v1/r", i))
	}
	path := "https://x.test/apis/apps/v1/namespaces/shop/deployments/web"
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, path, http.NoBody)
	testkit.NoError(b, err)
	for _, namespace := range []string{"one", "two"} {
		rt.do(b, http.MethodGet, strings.Replace(path[len("https://x.test"):], "shop", namespace, 1))
	}
	var with, without time.Duration
	n := 0
	once := func() {
		began := time.Now()
		request, _ := rt.server.read(req)
		resp, _, err := rt.send(req, &request, "")
		middle := time.Now()
		rt.rights.used(req, &request, resp)
		without += middle.Sub(began)
		with += time.Since(began)
		n++
		testkit.NoError(b, err)
	}
	for b.Loop() {
		once()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(with)/float64(n), "with-ns/op")
	b.ReportMetric(float64(without)/float64(n), "without-ns/op")
	request, _ := rt.server.read(req)
	answer := &http.Response{StatusCode: base.status}
	b.ReportMetric(testing.AllocsPerRun(1000, func() { rt.rights.used(req, &request, answer) }), "added-allocs/op")
}

func TestRights_TakeNoAllocation(t *testing.T) {
	rt, _ := newTransport(200)
	rt.do(t, "GET", "/api/v1/namespaces/a/pods/x")
	request := &ledger.Request{Verb: "get", Resource: "pods", Namespace: "a", Name: "x"}
	answer := &http.Response{StatusCode: http.StatusOK}
	testkit.Equal(t, testing.AllocsPerRun(100, func() { rt.rights.used(&http.Request{}, request, answer) }), 0)
}
