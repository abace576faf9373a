// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// query returns the values of a GET request's parameters. It answers other requests, and those with
// unknown parameters, itself: then ok is false.
func query(w http.ResponseWriter, r *http.Request, known ...string) (values url.Values, ok bool) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use the method GET", http.StatusMethodNotAllowed)
		return nil, false
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		http.Error(w, fmt.Sprintf("the query cannot be read: %v; encode the values", err), http.StatusBadRequest)
		return nil, false
	}
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			http.Error(w, fmt.Sprintf("the parameter %q is unknown; use %s", name, strings.Join(known, ", ")), http.StatusBadRequest)
			return nil, false
		case len(all) > 1:
			http.Error(w, fmt.Sprintf("the parameter %s has %d values; give one", name, len(all)), http.StatusBadRequest)
			return nil, false
		}
	}
	return values, true
}

// write answers with JSON.
func write(w http.ResponseWriter, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, "the state cannot be written as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff") // names and errors may contain HTML
	_, _ = w.Write(append(body, '\n'))                  // the client has gone
}
