// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"log/slog"

	"github.com/go-logr/logr"
)

// slogOf returns a logger that writes to another one.
func slogOf(l logr.Logger) *slog.Logger { return slog.New(slogHandler{logr.ToSlogHandler(l)}) }

// slogHandler hides the type of logr's handler. logr.FromSlogHandler would take the sink out of it
// and call its Init again, while others log.
type slogHandler struct{ slog.Handler }

func (h slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return slogHandler{h.Handler.WithAttrs(attrs)}
}

func (h slogHandler) WithGroup(name string) slog.Handler {
	return slogHandler{h.Handler.WithGroup(name)}
}
