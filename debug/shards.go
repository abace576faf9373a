// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"net/http"

	"github.com/setpoint-dev/setpoint/manager"
)

// shards serves a list with the state of the group, as this process sees it. group may be nil.
func shards(group manager.Group) http.Handler {
	shown := []manager.Group{} // an empty list, not null
	if group != nil {
		shown = append(shown, group)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { write(w, shown) })
	return mux
}
