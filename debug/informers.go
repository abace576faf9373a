// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/setpoint-dev/setpoint/hook"
)

// Cache has informers, as a *cache.Cache does.
type Cache interface{ States() []hook.InformerState }

// Informers returns a handler. GET / returns the state of each informer of the caches as a JSON
// list, sorted by kind and scope: see hook.InformerState. Each request counts all objects, and
// estimates their size from a sample. The handler is safe for concurrent use.
func Informers(caches ...Cache) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		all := []informer{}
		for _, c := range caches {
			for _, s := range c.States() {
				i := informer{InformerState: s}
				if s.Err != nil {
					i.Err = s.Err.Error()
				}
				all = append(all, i)
			}
		}
		slices.SortStableFunc(all, func(a, b informer) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Storage, b.Storage))
		})
		write(w, all)
	})
	return mux
}

// informer is a state whose error is text.
type informer struct {
	hook.InformerState

	Err string `json:",omitempty"`
}
