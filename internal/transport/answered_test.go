// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestEachRequestIsReported: the hook gets each request once, with a ledger and without, answered,
// failed and refused, also if a client is made from the configuration of one with hooks.
func TestEachRequestIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			if r.URL.Path == "/api/v1/nodes" {
				return nil, errors.New("broken")
			}
			return ok(`{}`).RoundTrip(r)
		})
		first, err := client.New(&rest.Config{Host: "http://server:8080/behind", Transport: slow}, client.Options{
			RequireTerm: true,
			Hook: hook.On(func(a *hook.APIAnswer) {
				told = append(told, fmt.Sprint(a.Method, " ", a.Host, " ", a.Watch, " ", a.Status, " ", a.Took, " ", a.Err != nil))
			}),
		})
		testkit.NoError(t, err)
		second, err := client.New(first.Config(), client.Options{})
		testkit.NoError(t, err)
		attributed := journal.With(t.Context(), journal.New(journal.Origin{Controller: "test"}))
		for _, c := range []*client.Client{first, second} {
			for _, request := range []struct{ method, path string }{
				{http.MethodGet, "/api/v1/pods"}, {http.MethodGet, "/api/v1/pods?watch=true"}, {http.MethodGet, "/api/v1/nodes"},
				{http.MethodDelete, "/api/v1/nodes/a"},
			} {
				for _, with := range []context.Context{t.Context(), attributed} {
					req, err := http.NewRequestWithContext(with, request.method, "http://server:8080"+request.path, http.NoBody)
					testkit.NoError(t, err)
					if resp, err := c.HTTPClient().Do(req); err == nil {
						resp.Body.Close()
					}
				}
			}
		}
		var want []string
		for range 2 {
			want = append(want, "GET server:8080 false 200 1s false", "GET server:8080 false 200 1s false", "GET server:8080 true 200 1s false",
				"GET server:8080 true 200 1s false", "GET server:8080 false 0 1s true", "GET server:8080 false 0 1s true",
				"DELETE server:8080 false 0 0s true", "DELETE server:8080 false 0 0s true")
		}
		testkit.SlicesEqual(t, told, want)
	})
}
