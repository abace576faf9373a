// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"embed"
	"fmt"
	"net/http"
	"path"
	"strconv"
)

//go:embed page
var pageFiles embed.FS

// policy lets the page run only its own script and ask only its own server. With trusted types, a
// script cannot turn text into HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// page serves one of the page's files.
func page(name, contentType string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := query(w, r); !ok {
			return
		}
		body, err := pageFiles.ReadFile(path.Join("page", name))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		secure(w.Header(), contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(body) // the client has gone
		}
	}
}

func secure(h http.Header, contentType string) {
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// sameSite refuses the requests that a browser sends for a page of another site. Such a page cannot
// read the answers, but it could keep the server busy.
func sameSite(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			http.Error(w, fmt.Sprintf("the request comes from a page of another site (%s); open /debug/ itself", site), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
