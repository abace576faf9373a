// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// client-go traces each request. Its hooks must not collect in the transport, which lives long.
func TestATraceSeesOnlyItsOwnRequest(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	c, err := client.New(&rest.Config{Host: server.URL}, client.Options{})
	testkit.NoError(t, err)
	defer c.Close()
	var calls [3]int
	for i := range calls {
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { calls[i]++ }}
		ctx := httptrace.WithClientTrace(t.Context(), trace)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/version", http.NoBody)
		testkit.NoError(t, err)
		resp, err := c.HTTPClient().Do(req)
		testkit.NoError(t, err)
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	testkit.Equal(t, calls, [3]int{1, 1, 1}, "the traces of three requests have seen connections")
}
