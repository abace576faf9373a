// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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

// reasonOf returns the same text for errors of the same cause about different objects: the API
// server's reason, or the innermost error without digits and quoted text.
func reasonOf(err error) (reason string) {
	whole := err
	defer func() {
		if recover() != nil {
			reason = fmt.Sprintf("%T", whole)
		}
	}()
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	for {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			var all []string
			for _, err := range joined.Unwrap() {
				if err != nil {
					all = append(all, reasonOf(err))
				}
			}
			return strings.Join(all, "; ")
		}
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	quoted := false
	return strings.Map(func(r rune) rune {
		if r == '"' {
			quoted = !quoted
		}
		if quoted || unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
}
