// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// noBookmarks is an API server that sends no bookmarks. Quiet watches then lead to lists.
type noBookmarks struct{}

func (noBookmarks) name() string { return "no bookmarks" }
func (noBookmarks) line() string { return "" }

func (noBookmarks) strike(w *world, r *rand.Rand) int {
	rule := fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Change: func(h *http.Request, next http.RoundTripper) (*http.Response, error) {
		q := h.URL.Query()
		if q.Get("sendInitialEvents") == "" {
			q.Del("allowWatchBookmarks")
			h.URL.RawQuery = q.Encode()
		}
		return next.RoundTrip(h)
	}}
	lists := w.plane.add(fault.Rule{Match: fault.Match{Verbs: []string{"list"}, Func: w.ofReplica}})
	defer lists.Remove()
	w.rule(r, rule, between(r, 4*time.Minute, 10*time.Minute), true)
	return lists.Hits()
}
