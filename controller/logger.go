// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
)

// Logger returns the logger of the Reconcile that ctx belongs to, with the attributes controller,
// key, reconcileID and attempt. With any other context, such as that of a unit test, it returns the
// logger that logr.NewContext or logr.NewContextWithSlogLogger has put into ctx, and without one
// slog.Default(). It never returns nil.
func Logger(ctx context.Context) *slog.Logger {
	if log := logr.FromContextAsSlogLogger(ctx); log != nil {
		return log
	}
	return slog.Default()
}
