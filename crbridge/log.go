// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
)

// slogOf returns a slog.Logger for a logger of logr. Package logr would turn its own handler back
// by initializing the sink again, which client-go does in every request: a data race, and with zap
// one more skipped caller each time.
func slogOf(l logr.Logger) *slog.Logger {
	return slog.New(&opaqueHandler{logr.ToSlogHandler(l), l.WithCallDepth(3)})
}

// opaqueHandler is a handler that package logr does not recognize. The error of a line is the one
// of logr's Error, so that it has the same key as the errors of controller-runtime.
type opaqueHandler struct {
	slog.Handler

	errors logr.Logger // without a sink in a group
}

// Handle implements slog.Handler.
func (h *opaqueHandler) Handle(ctx context.Context, r slog.Record) error {
	var cause error
	rest := make([]any, 0, 2*r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		value := a.Value.Resolve().Any()
		if err, ok := value.(error); ok && a.Key == "err" {
			cause = err
		} else {
			rest = append(rest, a.Key, value)
		}
		return true
	})
	if cause == nil || r.Level < slog.LevelError || h.errors.GetSink() == nil {
		return h.Handler.Handle(ctx, r)
	}
	h.errors.Error(cause, r.Message, rest...)
	return nil
}

// WithAttrs implements slog.Handler.
func (h *opaqueHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	values := make([]any, 0, 2*len(attrs))
	for _, a := range attrs {
		values = append(values, a.Key, a.Value.Resolve().Any())
	}
	with := &opaqueHandler{Handler: h.Handler.WithAttrs(attrs)}
	if h.errors.GetSink() != nil {
		with.errors = h.errors.WithValues(values...)
	}
	return with
}

// WithGroup implements slog.Handler.
func (h *opaqueHandler) WithGroup(name string) slog.Handler {
	return &opaqueHandler{Handler: h.Handler.WithGroup(name)}
}
