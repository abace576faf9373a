// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/logging"
)

// Logger returns the logger of a Reconcile from its context, with the attributes controller, key,
// reconcileID, attempt, class and, if the key has one, tenant. For other contexts, such as in unit
// tests, it returns the context's logger (logr), or slog.Default(). It never returns nil.
func Logger(ctx context.Context) *slog.Logger {
	return logging.Of(ctx)
}

// LogAttrs implements logging.Lazy.
func (r *running[K]) LogAttrs() []slog.Attr {
	attrs := []slog.Attr{
		slog.String("key", fmt.Sprint(r.item.Key())), slog.Int("attempt", r.item.Attempt()),
		slog.String("reconcileID", r.id()), slog.String("class", r.item.Class().String()),
	}
	if tenant := r.item.Tenant(); tenant != "" {
		attrs = append(attrs, slog.String("tenant", tenant))
	}
	return attrs
}

func (r *running[K]) id() string {
	return journal.ReconcileID(r.of.controller.run, r.item.Delivery())
}

type leveled struct {
	slog.Handler

	level slog.Level
}

func (l leveled) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

func (l leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{l.Handler.WithAttrs(attrs), l.level}
}

func (l leveled) WithGroup(name string) slog.Handler {
	return leveled{l.Handler.WithGroup(name), l.level}
}
