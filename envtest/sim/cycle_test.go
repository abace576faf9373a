// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// BenchmarkCycle measures a create-get-update-delete cycle of a ConfigMap, without a typed client.
// Package conformance compares it with the real API server.
func BenchmarkCycle(b *testing.B) {
	api := sim.NewServer(sim.Namespaces, sim.ConfigMaps)
	client := &http.Client{Transport: api}
	const body = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`
	do := func(method, path, body string) {
		r, err := http.NewRequestWithContext(b.Context(), method, sim.Host+"/api/v1/namespaces/default/configmaps"+path, strings.NewReader(body))
		testkit.NoError(b, err)
		r.Header.Set("Accept", "application/json")
		r.Header.Set("User-Agent", "cycle/v1")
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		testkit.NoError(b, err)
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode >= http.StatusBadRequest {
			b.Fatal(resp.Status, err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		do(http.MethodPost, "", body)
		do(http.MethodGet, "/a", "")
		do(http.MethodPut, "/a", strings.Replace(body, `"v"`, `"w"`, 1))
		do(http.MethodDelete, "/a", "")
	}
}
