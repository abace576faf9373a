// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestMade: which requests prove that they made the version of the answer.
func TestMade(t *testing.T) {
	const (
		stored = `{"kind":"Widget","apiVersion":"x/v1","metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"9"}}`
		merge  = "application/merge-patch+json"
		ops    = "application/json-patch+json"
		path   = `"path":"/metadata/resourceVersion"`
	)
	for _, c := range []struct {
		contentType, body string
		made              bool
	}{
		{merge, `{"metadata":{"resourceVersion":"7"}}`, true},
		{merge, `{"metadata":{"resourceVersion":"9"}}`, false},
		{merge, `{"metadata":{"resourceVersion":"0"}}`, false},
		{merge, `{"metadata":{"resourceVersion":null}}`, false},
		{merge, `{"metadata":{"resourceVersion":"7","resourceVersion":null}}`, false},
		{merge, `{"spec":{"metadata":{"resourceVersion":"7"}}}`, false},
		{ops, `[{"op":"test",` + path + `,"value":"7"}]`, true},
		{ops + "; charset=utf-8", `[{"op":"test",` + path + `,"value":"7"}]`, true},
		{ops, `[{"op":"test",` + path + `,"value":"7"},{"op":"remove",` + path + `}]`, true},
		{ops, `[{"op":"replace",` + path + `,"value":"7"}]`, true},
		{ops, `[{"op":"add",` + path + `,"value":"7"}]`, true},
		{ops, `[{"op":"test",` + path + `,"value":7}]`, false},
		{ops, `[{"op":"test",` + path + `}]`, false},
		{ops, `[{"op":"add",` + path + `,"value":"7"},{"op":"test",` + path + `,"value":"7"},{"op":"remove",` + path + `}]`, false},
		{ops, `[{"op":"test",` + path + `,"value":"7"},{"op":5}]`, false},
		{"application/apply-patch+yaml", "metadata:\n  labels: {}\n", false},
	} {
		testkit.Equal(t, answeredTo(t, http.MethodPatch, "a", c.contentType, c.body, stored), c.made, c.contentType, c.body, "made")
	}
	testkit.Equal(t, answeredTo(t, http.MethodPost, "a/refresh", "application/json", `{}`, stored), false, "a request to a subresource created its object")
	testkit.Equal(t, answeredTo(t, http.MethodPost, "", "application/json", `{}`, stored), true, "a create did not create its object")
}

func answeredTo(t *testing.T, method, path, contentType, body, answer string) (made bool) {
	t.Helper()
	answers := roundTripper(func(r *http.Request) (*http.Response, error) {
		header := http.Header{"Content-Type": {"application/json"}}
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
	})
	cl, err := client.New(&rest.Config{Host: "http://server:8080", Transport: answers}, client.Options{})
	testkit.NoError(t, err)
	j := journal.New(journal.Origin{Controller: "test"})
	url := strings.TrimSuffix("http://server:8080/apis/x/v1/namespaces/default/widgets/"+path, "/")
	req, err := http.NewRequestWithContext(journal.With(t.Context(), j), method, url, strings.NewReader(body))
	testkit.NoError(t, err)
	req.Header.Set("Content-Type", contentType)
	resp, err := cl.HTTPClient().Do(req)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	testkit.NoError(t, testkit.Err(io.ReadAll(resp.Body)))
	writes := j.Writes()
	if len(writes) != 1 {
		t.Fatalf("the writes are %+v", writes)
	}
	return writes[0].Made
}
