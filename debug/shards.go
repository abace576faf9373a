// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"encoding/json"
	"net/http"
	"reflect"
)

// Group is a group of replicas that divide keys, such as a *shard.Group.
type Group interface{ json.Marshaler }

// Shards returns a handler. GET / returns the state of each group as this process sees it, as a
// JSON list: members, and owned and unserved slots. See shard.Status. It leaves nil groups out:
// manager.Manager.Group returns nil without a group. The handler is safe for concurrent use.
func Shards(groups ...Group) http.Handler {
	shown := []Group{} // an empty list, not null
	for _, g := range groups {
		if v := reflect.ValueOf(g); v.IsValid() && (v.Kind() != reflect.Pointer || !v.IsNil()) {
			shown = append(shown, g)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { write(w, shown) })
	return mux
}
