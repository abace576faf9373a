// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestPage_IsSmallAndSelfContained: three files without a link to another server, under 200 KB.
func TestPage_IsSmallAndSelfContained(t *testing.T) {
	h, size := debug.Handler(newManager(t, nil), debug.Options{}), 0
	for path, contentType := range map[string]string{
		"/debug/": "text/html; charset=utf-8", "/debug/page.css": "text/css; charset=utf-8", "/debug/page.js": "text/javascript; charset=utf-8",
	} {
		w := get(t, h, "GET", path)
		body := w.Body.String()
		size += len(body)
		testkit.Equal(t, w.Code, http.StatusOK, path)
		testkit.Equal(t, w.Header().Get("Content-Type"), contentType, path)
		testkit.NotEqual(t, body, "", path)
		text := strings.ReplaceAll(body, "http://www.w3.org/2000/svg", "") // a name, not an address
		testkit.Len(t, regexp.MustCompile(`(?:https?:)?//[a-z0-9.-]+\.[a-z]|@import|url\(`).FindAllString(text, -1), 0, fmt.Sprintf("%s names other servers", path))
		if inline := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|<script>|<style|style="| on[a-z]+="`).FindAllString(body, -1); len(inline) > 0 {
			t.Errorf("%s has %q", path, inline)
		}
		if w := get(t, h, "HEAD", path); w.Code != http.StatusOK || w.Body.Len() > 0 {
			t.Errorf("HEAD %s: %d with %d bytes", path, w.Code, w.Body.Len())
		}
		testkit.Equal(t, get(t, h, "POST", path).Code, http.StatusMethodNotAllowed, fmt.Sprintf("POST %s", path))
	}
	t.Logf("the page has %d bytes", size)
	testkit.AtMost(t, size, 200_000)
}

// TestPage_Headers: a browser runs only the page's own script, and shows the page in no frame.
func TestPage_Headers(t *testing.T) {
	h := debug.Handler(newManager(t, nil), debug.Options{})
	for _, path := range []string{"/debug/", "/debug/page.css", "/debug/page.js"} {
		header := get(t, h, "GET", path).Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			testkit.Equal(t, header.Get(name), want, path, name)
		}
		policy := header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'; ", "script-src 'self'; ", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
			testkit.Contains(t, policy, want, path, "the policy")
		}
		testkit.NotContains(t, policy, "unsafe", path)
		testkit.NotContains(t, policy, "*", path)
	}
}

// TestPage_RefusesOtherSites: another page in the browser cannot keep the server busy.
func TestPage_RefusesOtherSites(t *testing.T) {
	h := debug.Handler(newManager(t, nil), debug.Options{})
	for site, want := range map[string]int{"": http.StatusOK, "same-origin": http.StatusOK, "none": http.StatusOK, "same-site": http.StatusForbidden, "cross-site": http.StatusForbidden} {
		for _, path := range []string{"/debug/keys", "/debug/stream"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodHead, path, http.NoBody)
			if path == "/debug/keys" {
				r.Method = http.MethodGet
			}
			r.Header.Set("Sec-Fetch-Site", site)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			testkit.Equal(t, w.Code, want, fmt.Sprintf("%s from %q", path, site))
		}
	}
}
