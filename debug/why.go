// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/setpoint-dev/setpoint/why"
)

// Why returns a handler that explains why an object is reconciled or not. GET
// /?kind=Website&namespace=default&name=shop returns why.Answers as JSON. The namespace is empty
// for cluster-scoped kinds. Handler has it under /debug/why; Why is for programs without a manager.
func Why(all ...why.Explainer) http.Handler { return explain(false, all...) }

func explain(values bool, all ...why.Explainer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, ok := query(w, r, "kind", "namespace", "name")
		if !ok {
			return
		}
		if o, ok := objectOf(w, q); ok {
			o.Values = values
			write(w, why.For(r.Context(), o, all...))
		}
	})
}

// objectOf answers requests that name no object: then ok is false.
func objectOf(w http.ResponseWriter, q url.Values) (o why.Object, ok bool) {
	for _, name := range []string{"kind", "name"} {
		if q.Get(name) == "" {
			http.Error(w, fmt.Sprintf("the parameter %s is missing; use for example ?kind=Website&namespace=default&name=shop", name), http.StatusBadRequest)
			return o, false
		}
	}
	return why.Object{Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name")}, true
}
