// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/setpoint-dev/setpoint/server"
)

// checks never change.
type checks struct{ live, ready []*server.Check }

func (c checks) Livez() []*server.Check { return c.live }

func (c checks) Readyz() []*server.Check { return c.ready }

func probe(h http.Handler, method, path string) (status int, body string) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(method, path, http.NoBody))
	return answer.Code, strings.TrimSpace(answer.Body.String())
}

// TestHealth_IsAHandlerForAnyMux: it needs no manager and no Server.
func TestHealth_IsAHandlerForAnyMux(t *testing.T) {
	fine := server.NewCheck("fine", func(context.Context) error { return nil })
	broken := server.NewCheck("broken", func(context.Context) error { return errors.New("no disk") })
	h := &server.Health{Checks: checks{live: []*server.Check{fine}, ready: []*server.Check{fine, broken}}}
	mux := http.NewServeMux()
	mux.Handle("/livez", h)
	mux.Handle("/readyz", h)
	mux.Handle("/readyz/", h)
	mux.Handle("/health/", http.StripPrefix("/health", h))
	for _, test := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/livez", 200, "ok"},
		{"HEAD", "/livez", 200, "ok"},
		{"GET", "/livez?verbose", 200, "[+]fine ok\nlivez check passed"},
		{"GET", "/readyz", 500, "[+]fine ok\n[-]broken failed: no disk\nreadyz check failed"},
		{"GET", "/readyz/", 500, "[+]fine ok\n[-]broken failed: no disk\nreadyz check failed"},
		{"GET", "/readyz/fine", 200, "ok"},
		{"GET", "/readyz/other", 404, `there is no check "other"`},
		{"GET", "/readyz?exclude=broken", 200, "ok"},
		{"GET", "/health/healthz/fine", 200, "ok"},
		{"GET", "/health/other", 404, `there is no check at "/other"; the paths are ["/livez" "/healthz" "/readyz"]`},
		{"POST", "/livez", 405, "use GET"},
	} {
		if status, body := probe(mux, test.method, test.path); status != test.status || body != test.body {
			t.Errorf("%s %s: %d %s\nwant %d %s", test.method, test.path, status, body, test.status, test.body)
		}
	}
	if status, body := probe(&server.Health{}, http.MethodGet, "/readyz"); status != 200 || body != "ok" {
		t.Errorf("without checks: %d %s", status, body)
	}
	h.Wait()
}

// TestHealth_WaitJoinsItsChecks: a check that hangs delays no answer, and Wait waits for it.
func TestHealth_WaitJoinsItsChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		hangs := server.NewCheck("hangs", func(context.Context) error { <-free; return nil })
		h := &server.Health{Checks: checks{live: []*server.Check{hangs}}}
		if status, body := probe(h, http.MethodGet, "/livez"); status != 500 || !strings.Contains(body, "[-]hangs failed: it has not answered for 800ms") {
			t.Errorf("%d %s", status, body)
		}
		joined := make(chan struct{})
		go func() {
			h.Wait()
			close(joined)
		}()
		synctest.Wait()
		select {
		case <-joined:
			t.Error("Wait returned while a check ran")
		default:
		}
		close(free)
		<-joined
	})
}
