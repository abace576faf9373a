// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/e2e/wire"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWire: new connections work after Freeze.
func TestWire(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	w, cfg, err := wire.Start(&rest.Config{Host: server.URL})
	testkit.NoError(t, err)
	defer w.Close()
	w.Freeze()
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Get(strings.Replace(cfg.Host, "https", "http", 1))
	testkit.NoError(t, err)
	answer.Body.Close()
}
