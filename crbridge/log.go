// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"log/slog"

	"github.com/go-logr/logr"
)

// slogOf returns a slog.Logger for a logger of logr. Package logr would turn its own handler back
// by initializing the sink again, which client-go does in every request: a data race, and with zap
// one more skipped caller each time.
func slogOf(l logr.Logger) *slog.Logger { return slog.New(opaqueHandler{logr.ToSlogHandler(l)}) }

// opaqueHandler is a handler that package logr does not recognize.
type opaqueHandler struct{ slog.Handler }

func (h opaqueHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return opaqueHandler{h.Handler.WithAttrs(attrs)}
}

func (h opaqueHandler) WithGroup(name string) slog.Handler {
	return opaqueHandler{h.Handler.WithGroup(name)}
}
