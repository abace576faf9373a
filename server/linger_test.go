// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/server"
)

// TestA4_AStopClosesConnectionsAfterTheirAnswers keeps a connection, as an API server does. The
// stop ends when that connection is closed, long before Linger ends.
func TestA4_AStopClosesConnectionsAfterTheirAnswers(t *testing.T) {
	s := open(t, server.Options{Plain: true, Linger: time.Hour})
	s.Handle("GET /page", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	stop, cancel, result := serve(t, s)
	defer cancel()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	get := func() (closes bool) {
		resp, err := (&http.Client{Transport: transport}).Get("http://" + address(s) + "/page")
		testkit.NoError(t, err)
		defer resp.Body.Close()
		testkit.NoError(t, testkit.Err(io.Copy(io.Discard, resp.Body)))
		return resp.Close
	}
	testkit.Equal(t, get(), false, "the connection is closed before the stop")
	stop()
	for n := 0; !get(); n++ { // the stop may not have begun
		if n == 50_000 {
			t.Fatal("the connection stays open during the stop")
		}
	}
	testkit.Equal(t, result(), nil)
}
