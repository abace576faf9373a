// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"

	"k8s.io/klog/v2"
)

// logger logs the operator and client-go, next to the table: warnings only, unless -v. client-go
// logs nothing after an interrupt, which ends its requests. In a Reconcile it has the operator's
// logger.
func logger(o options, interrupted <-chan struct{}) *slog.Logger {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelInfo
	}
	text := slog.NewTextHandler(o.err, &slog.HandlerOptions{Level: level})
	klog.SetSlogLogger(slog.New(until{text, interrupted}))
	return slog.New(uncanceled{text, interrupted})
}

// until is a handler that logs until end is closed.
type until struct {
	slog.Handler

	end <-chan struct{}
}

// Enabled implements slog.Handler.
func (u until) Enabled(ctx context.Context, l slog.Level) bool {
	select {
	case <-u.end:
		return false
	default:
		return u.Handler.Enabled(ctx, l)
	}
}

// WithAttrs implements slog.Handler.
func (u until) WithAttrs(attrs []slog.Attr) slog.Handler {
	return until{u.Handler.WithAttrs(attrs), u.end}
}

// WithGroup implements slog.Handler.
func (u until) WithGroup(name string) slog.Handler { return until{u.Handler.WithGroup(name), u.end} }

// uncanceled is a handler that leaves out what is only canceled, once end is closed.
type uncanceled struct {
	slog.Handler

	end <-chan struct{}
}

// Handle implements slog.Handler.
func (u uncanceled) Handle(ctx context.Context, r slog.Record) error {
	if until(u).Enabled(ctx, slog.LevelError) {
		return u.Handler.Handle(ctx, r)
	}
	canceled := false
	r.Attrs(func(a slog.Attr) bool {
		err, _ := a.Value.Any().(error)
		canceled = canceled || errors.Is(err, context.Canceled)
		return true
	})
	if canceled {
		return nil
	}
	return u.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (u uncanceled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return uncanceled{u.Handler.WithAttrs(attrs), u.end}
}

// WithGroup implements slog.Handler.
func (u uncanceled) WithGroup(name string) slog.Handler {
	return uncanceled{u.Handler.WithGroup(name), u.end}
}
