// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/setpoint-dev/setpoint/internal/logging"
)

// call is an admission request while its function runs.
type call struct {
	webhook string
	request *admissionv1.AdmissionRequest

	mu       sync.Mutex // guards warnings
	warnings []string
}

type callKey struct{}

func (c *call) context(ctx context.Context) context.Context {
	log := slog.New(&logging.Lazy{Base: logging.Of(ctx).Handler(), Of: c})
	return context.WithValue(logr.NewContextWithSlogLogger(ctx, log), callKey{}, c)
}

func (c *call) warned() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.warnings)
}

// RequestFromContext returns the admission request of a function's context: its user, operation,
// dry run and objects. It returns nil for other contexts. Do not change the request.
func RequestFromContext(ctx context.Context) *admissionv1.AdmissionRequest {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.request
	}
	return nil
}

// Warnf adds a warning to the answer of a function's context, for allowed and rejected requests.
// kubectl prints it. The API server cuts warnings off after 256 characters, and after 4096 in
// total. For other contexts, and after the function has returned, Warn does nothing.
func Warnf(ctx context.Context, format string, args ...any) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	text := fmt.Sprintf(format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings = append(c.warnings, text)
}

// LogAttrs implements logging.Lazy.
func (c *call) LogAttrs() []slog.Attr {
	r := c.request
	return []slog.Attr{
		slog.String("webhook", c.webhook), slog.String("uid", string(r.UID)), slog.String("kind", r.Kind.Kind),
		slog.String("namespace", r.Namespace), slog.String("name", r.Name), slog.String("operation", string(r.Operation)),
	}
}
