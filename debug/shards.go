// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"encoding/json"
	"net/http"
)

// Group is a group of replicas that divide keys, such as a *shard.Group.
type Group interface{ json.Marshaler }

// Shards returns a handler. GET / returns the state of each group as this process sees it, as a
// JSON list: members, owned and unserved slots, and the last moves. See shard.Status. The handler
// is safe for concurrent use.
func Shards(groups ...Group) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { write(w, append([]Group{}, groups...)) })
	return mux
}
