// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"fmt"
	"net/http"

	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/why"
)

// whyKey explains a key that is given by its controller and its text. Other requests are for next.
func whyKey(all func() []manager.Controller, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("key") {
			next.ServeHTTP(w, r)
			return
		}
		q, ok := query(w, r, "controller", "key")
		if !ok {
			return
		}
		c := named(w, all(), q.Get("controller"))
		if c == nil {
			return
		}
		e, ok := c.(interface {
			ExplainKey(key string) (a why.Answer, known bool)
		})
		if !ok {
			http.Error(w, fmt.Sprintf("no explanations: the controller %q has no method ExplainKey", c.Name()), http.StatusNotFound)
			return
		}
		a, known := e.ExplainKey(q.Get("key"))
		if !known {
			http.Error(w, fmt.Sprintf("no key %q is queued, in progress, failing or remembered; use the text of a key of /debug/keys", q.Get("key")), http.StatusNotFound)
			return
		}
		write(w, why.Answers{Answers: []why.Answer{a}})
	})
}
