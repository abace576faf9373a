// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/setpoint-dev/setpoint/hook"
)

// informers serves a list of states, sorted by kind and scope.
func informers(states func() []hook.InformerState) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		all := []informer{}
		for _, s := range states() {
			i := informer{InformerState: s}
			if s.Err != nil {
				i.Err = s.Err.Error()
			}
			all = append(all, i)
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
