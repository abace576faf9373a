// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func profile(ctx context.Context, path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	debug.Profiles().ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody))
	return answer
}

func TestProfiles(t *testing.T) {
	for path, want := range map[string]string{
		"/":                  "\nheap\n",
		"/cmdline":           os.Args[0],
		"/goroutine?debug=2": "TestProfiles",
		"/heap?debug=1&gc=1": "heap profile:",
	} {
		if a := profile(t.Context(), path); a.Code != http.StatusOK || !strings.Contains(a.Body.String(), want) {
			t.Errorf("%s: %d without %q:\n%s", path, a.Code, want, a.Body)
		}
	}
	for _, path := range []string{"/heap", "/profile?seconds=0.01"} {
		a := profile(t.Context(), path)
		unzipped, err := gzip.NewReader(a.Body)
		if err != nil || a.Header().Get("Content-Disposition") == "" {
			t.Fatalf("%s: %d, %v, %v", path, a.Code, a.Header(), err)
		}
		if body, err := io.ReadAll(unzipped); err != nil || len(body) == 0 {
			t.Errorf("%s: a profile of %d bytes, %v", path, len(body), err)
		}
	}
	if a := profile(t.Context(), "/trace?seconds=0.01"); !strings.HasPrefix(a.Body.String(), "go 1.") {
		t.Errorf("the trace begins with %.20q", a.Body)
	}
}

func TestProfiles_RefusesBadRequests(t *testing.T) {
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/nothing":               {http.StatusNotFound, `no profile is named "nothing"`},
		"/profile?seconds=x":     {http.StatusBadRequest, "seconds=x is invalid"},
		"/profile?seconds=NaN":   {http.StatusBadRequest, "seconds=NaN is invalid"},
		"/trace?seconds=-1":      {http.StatusBadRequest, "seconds=-1 is invalid"},
		"/profile?seconds=86400": {http.StatusBadRequest, "at most 3600"},
		"/heap?seconds=1":        {http.StatusBadRequest, "only profile and trace take seconds"},
		"/heap?debug=x":          {http.StatusBadRequest, "debug=x is invalid"},
	} {
		if a := profile(t.Context(), path); a.Code != want.status || !strings.Contains(a.Body.String(), want.text) {
			t.Errorf("%s: %d %s, want %d %s", path, a.Code, a.Body, want.status, want.text)
		}
	}
}

// TestProfiles_OneAtATime: a second CPU profile is refused.
func TestProfiles_OneAtATime(t *testing.T) {
	testkit.NoError(t, pprof.StartCPUProfile(io.Discard))
	a := profile(t.Context(), "/profile?seconds=1")
	pprof.StopCPUProfile()
	testkit.Equal(t, a.Code, http.StatusConflict)
	testkit.Contains(t, a.Body.String(), "wait for the one that runs")
	testkit.Equal(t, a.Header().Get("Content-Disposition"), "")
}

// TestProfiles_EndWithTheirRequest: a CPU profile of an hour is complete when its request ends.
func TestProfiles_EndWithTheirRequest(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	end()
	a := profile(ctx, "/profile?seconds=3600")
	testkit.Equal(t, a.Code, http.StatusOK)
	testkit.Equal(t, testkit.Err(gzip.NewReader(a.Body)), nil)
}
