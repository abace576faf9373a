// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/setpoint-dev/setpoint/manager"
)

func controllers(all func() []manager.Controller) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { write(w, names(all())) })
	mux.HandleFunc("GET /{name...}", func(w http.ResponseWriter, r *http.Request) {
		if c := named(w, all(), r.PathValue("name")); c != nil {
			write(w, c)
		}
	})
	return mux
}

func names(all []manager.Controller) []string {
	names := []string{} // an empty list, not null
	for _, c := range all {
		names = append(names, c.Name())
	}
	slices.Sort(names)
	return names
}

// named returns the controller with a name. If there is none, it answers and returns nil.
func named(w http.ResponseWriter, all []manager.Controller, name string) manager.Controller {
	i := slices.IndexFunc(all, func(c manager.Controller) bool { return c.Name() == name })
	if i < 0 {
		http.Error(w, fmt.Sprintf("no controller is named %q; there are %q", name, names(all)), http.StatusNotFound)
		return nil
	}
	return all[i]
}
