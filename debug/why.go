// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"fmt"
	"net/http"

	"github.com/setpoint-dev/setpoint/why"
)

// Why returns a handler that explains why an object is reconciled or not. GET
// /?kind=Website&namespace=default&name=shop returns why.Answers as JSON. The namespace is empty
// for cluster-scoped kinds. Handler has it under /debug/why; Why is for programs without a manager.
func Why(all ...why.Explainer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, ok := query(w, r, "kind", "namespace", "name")
		if !ok {
			return
		}
		for _, name := range []string{"kind", "name"} {
			if q.Get(name) == "" {
				http.Error(w, fmt.Sprintf("the parameter %s is missing; use for example ?kind=Website&namespace=default&name=shop", name), http.StatusBadRequest)
				return
			}
		}
		write(w, why.For(r.Context(), why.Object{Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name")}, all...))
	})
}
