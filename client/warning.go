// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/logging"
)

// maxWarnings is the number of different warnings that a client logs, of at most 4 KB per response.
const maxWarnings = 1000

type warnings struct {
	seen   sync.Map // of kindWarning
	logged atomic.Int32
}

// warningHandler handles the warnings of requests for a kind.
type warningHandler struct {
	*warnings

	kind schema.GroupVersionKind
}

type kindWarning struct {
	kind schema.GroupVersionKind
	text string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext. The API server's own
// warnings have code 299 (https://kubernetes.io/blog/2020/09/03/warnings/).
func (w warningHandler) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	if code != 299 || text == "" || w.logged.Load() >= maxWarnings {
		return
	}
	if _, known := w.seen.LoadOrStore(kindWarning{w.kind, text}, nil); known {
		return
	}
	log := logging.Of(ctx)
	if w.kind.Kind != "" {
		log = log.With("kind", w.kind.Kind, "apiVersion", w.kind.GroupVersion().String())
	}
	log.WarnContext(ctx, "warning from the API server", "warning", text)
	if w.logged.Add(1) == maxWarnings {
		log.WarnContext(ctx, "further warnings of the API server are not logged", "logged", maxWarnings)
	}
}
