// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// logger logs the operator and client-go, next to the table: warnings only, unless -v. client-go
// logs nothing after an interrupt, which ends its requests.
func logger(o options, interrupted <-chan struct{}) *slog.Logger {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(o.err, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(slog.New(until{log.Handler(), interrupted}))
	return log
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
