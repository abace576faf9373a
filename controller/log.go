// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// itemLog is the logger of one Reconcile. Most log nothing, so its attributes are formatted when the first line is.
type itemLog[K comparable] struct {
	base slog.Handler
	item workqueue.Item[K]
	run  string
}

func (l *itemLog[K]) with() slog.Handler {
	return l.base.WithAttrs([]slog.Attr{
		slog.String("key", fmt.Sprint(l.item.Key())), slog.Int("attempt", l.item.Attempt()), slog.String("reconcileID", reconcileID(l.run, l.item.Delivery())),
	})
}

// reconcileID tells one Reconcile from all others, also of another process.
func reconcileID(run string, delivery uint64) string {
	return ledger.Origin{Run: run, Delivery: delivery}.ReconcileID()
}

// Enabled implements slog.Handler.
func (l *itemLog[K]) Enabled(ctx context.Context, level slog.Level) bool {
	return l.base.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l *itemLog[K]) Handle(ctx context.Context, r slog.Record) error {
	return l.with().Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l *itemLog[K]) WithAttrs(attrs []slog.Attr) slog.Handler { return l.with().WithAttrs(attrs) }

// WithGroup implements slog.Handler.
func (l *itemLog[K]) WithGroup(name string) slog.Handler { return l.with().WithGroup(name) }

// leveled is a handler with another level.
type leveled struct {
	slog.Handler

	level slog.Level
}

// Enabled implements slog.Handler.
func (l leveled) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

// WithAttrs implements slog.Handler.
func (l leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{l.Handler.WithAttrs(attrs), l.level}
}

// WithGroup implements slog.Handler.
func (l leveled) WithGroup(name string) slog.Handler {
	return leveled{l.Handler.WithGroup(name), l.level}
}

// fewLines has at first ten lines of one thing in the log, and then one in ten seconds.
type fewLines struct {
	limit    *rate.Limiter
	unlogged atomic.Int64 // since the last line
}

func newFewLines() *fewLines {
	return &fewLines{limit: rate.NewLimiter(rate.Every(10*time.Second), 10)}
}

// next says whether there is to be a line, and returns its attributes: with the number of those that there were not.
func (f *fewLines) next(args ...any) ([]any, bool) {
	if !f.limit.Allow() {
		f.unlogged.Add(1)
		return nil, false
	}
	if n := f.unlogged.Swap(0); n > 0 {
		args = append(args, "unlogged", n)
	}
	return args, true
}

// told remembers what the log has said already, of what it says once.
type told struct {
	mu sync.Mutex // guards what follows
	of map[string]struct{}
}

// mostTold is how many different things are said once; any others are not said.
const mostTold = 100

// first reports whether it is the first time.
func (t *told) first(words ...string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	what := strings.Join(words, " ")
	if _, before := t.of[what]; before || len(t.of) >= mostTold {
		return false
	}
	if t.of == nil {
		t.of = map[string]struct{}{}
	}
	t.of[what] = struct{}{}
	return true
}
