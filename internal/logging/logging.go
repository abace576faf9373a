// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package logging finds the logger of a context, and adds attributes to its lines.
package logging

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
)

// Of returns logr's logger in the context, else slog.Default().
func Of(ctx context.Context) *slog.Logger {
	if log := logr.FromContextAsSlogLogger(ctx); log != nil {
		return log
	}
	return slog.Default()
}

// Lazy is a handler that adds attributes to the lines of Base. It formats them only for a line,
// because most Reconciles and webhook calls log nothing.
type Lazy struct {
	Base slog.Handler
	Of   interface{ LogAttrs() []slog.Attr }
}

func (l *Lazy) with() slog.Handler { return l.Base.WithAttrs(l.Of.LogAttrs()) }

// Enabled implements slog.Handler.
func (l *Lazy) Enabled(ctx context.Context, level slog.Level) bool {
	return l.Base.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l *Lazy) Handle(ctx context.Context, r slog.Record) error { return l.with().Handle(ctx, r) }

// WithAttrs implements slog.Handler.
func (l *Lazy) WithAttrs(attrs []slog.Attr) slog.Handler { return l.with().WithAttrs(attrs) }

// WithGroup implements slog.Handler.
func (l *Lazy) WithGroup(name string) slog.Handler { return l.with().WithGroup(name) }
