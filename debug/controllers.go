// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// Controller is a named component with a state, such as a *controller.Controller.
type Controller interface {
	// Name is unique among the controllers shown.
	Name() string
	json.Marshaler
}

// Controllers returns a handler. GET / returns the controllers' names as a JSON list, GET /NAME a
// controller's current state as JSON. An unknown name gets a 404 that lists the names. The handler
// is safe for concurrent use.
func Controllers(controllers ...Controller) http.Handler {
	names := make([]string, 0, len(controllers))
	byName := make(map[string]Controller, len(controllers))
	for _, c := range controllers {
		names = append(names, c.Name())
		byName[c.Name()] = c
	}
	slices.Sort(names)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { write(w, names) })
	mux.HandleFunc("GET /{name...}", func(w http.ResponseWriter, r *http.Request) {
		c, ok := byName[r.PathValue("name")]
		if !ok {
			http.Error(w, fmt.Sprintf("no controller is named %q; there are %q", r.PathValue("name"), names), http.StatusNotFound)
			return
		}
		write(w, c)
	})
	return mux
}

func write(w http.ResponseWriter, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, "the state cannot be written as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client has gone
}
