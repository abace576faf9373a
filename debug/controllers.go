// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// Controller is something with a name and a state. A *controller.Controller is one.
type Controller interface {
	// Name is unique among the controllers shown.
	Name() string
	// MarshalJSON writes the state of this moment.
	json.Marshaler
}

// Controllers serves GET / as the JSON list of the controllers' names, and GET /NAME as the JSON of one's snapshot, taken at
// that moment. A name that is not there is 404 with a sentence that lists those that are.
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
	_, _ = w.Write(append(body, '\n')) // whoever asked has gone
}
