// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestWhy_OfOtherSites: a page of another site makes the operator send requests.
func TestWhy_OfOtherSites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Pods)
		defer api.Close()
		m := newManager(t, api)
		failingMaps(m, "website")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		synctest.Wait()
		h := debug.Handler(m, debug.Options{Values: true})
		before := len(api.Requests())
		codes := map[int]int{}
		for range 10 {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/why?kind=Pod&namespace=default&name=x", http.NoBody)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			codes[w.Code]++
		}
		testkit.Equal(t, len(api.Requests())-before, 0)
		stop()
		<-ended
	})
}
