// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// maxWarnings is how many different warnings a client logs. Their texts are at most 4 KB per answer.
const maxWarnings = 1000

// warnings logs what the API server warns of, each once.
type warnings struct {
	mu   sync.Mutex // guards what follows
	seen map[warning]struct{}
}

type warning struct {
	kind schema.GroupVersionKind
	text string
}

// handleWarnings puts one in cfg; nil if there is a handler already.
func handleWarnings(cfg *rest.Config) *warnings {
	if cfg.WarningHandler != nil || cfg.WarningHandlerWithContext != nil {
		return nil
	}
	w := &warnings{seen: map[warning]struct{}{}}
	cfg.WarningHandlerWithContext = w.of(schema.GroupVersionKind{})
	return w
}

// of returns a handler for requests about one kind; none is any kind.
func (w *warnings) of(kind schema.GroupVersionKind) rest.WarningHandlerWithContext {
	return kindWarnings{w, kind}
}

type kindWarnings struct {
	*warnings
	kind schema.GroupVersionKind
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext. 299 is the code of the API server's own warnings
// (https://kubernetes.io/blog/2020/09/03/warnings/); others come from proxies, and client-go leaves them out, too.
func (w kindWarnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	if code != 299 || text == "" {
		return
	}
	news, last := w.news(warning{w.kind, text})
	if !news {
		return
	}
	log := logr.FromContextAsSlogLogger(ctx)
	if log == nil {
		log = slog.Default()
	}
	if w.kind.Kind != "" {
		log = log.With("kind", w.kind.Kind, "apiVersion", w.kind.GroupVersion().String())
	}
	log.WarnContext(ctx, "the API server warns", "warning", text)
	if last {
		log.WarnContext(ctx, "further warnings of the API server are not logged", "logged", maxWarnings)
	}
}

// news says whether the warning is to be logged, and whether it is the last one that is.
func (w *warnings) news(text warning) (news, last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.seen[text]; ok || len(w.seen) >= maxWarnings {
		return false, false
	}
	w.seen[text] = struct{}{}
	return true, len(w.seen) == maxWarnings
}
