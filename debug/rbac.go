// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"net/http"
	"time"

	"github.com/setpoint-dev/setpoint/manager"
)

// reviewLimit is less than the plugin waits for an answer.
const reviewLimit = 2 * time.Second

// rights serves an rbac.Report.
func rights(m *manager.Manager) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := query(w, r); !ok {
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), reviewLimit)
		defer cancel()
		write(w, m.Rights(ctx))
	})
}
