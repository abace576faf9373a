// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/setpoint-dev/setpoint/internal/argument"
)

// Group is a group of replicas that divide keys, such as a *shard.Group.
type Group interface{ json.Marshaler }

// Shards returns a handler. GET / returns the state of each group as this process sees it, as a
// JSON list: members, and owned and unserved slots. See shard.Status. It leaves nil groups out:
// manager.Manager.Group returns nil without a group. The handler is safe for concurrent use.
func Shards(groups ...Group) http.Handler {
	shown := append([]Group{}, groups...) // an empty list, not null
	shown = slices.DeleteFunc(shown, func(g Group) bool { return argument.IsNil(g) })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { write(w, shown) })
	return mux
}
