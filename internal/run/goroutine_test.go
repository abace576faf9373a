// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"context"
	"sync"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/run"
)

type worker struct{ ctx context.Context } //nolint:containedctx // as a Reconcile's

func (w *worker) Working() context.Context { return w.ctx }

func TestGoroutines_FindsTheWorkOfAGoroutine(t *testing.T) {
	g := &run.Goroutines{}
	if run.GoroutinesOf(g.With(t.Context())) != g {
		t.Error("the context has other Goroutines")
	}
	elsewhere := func() (working context.Context) {
		var all sync.WaitGroup
		all.Go(func() { working = g.Working() })
		all.Wait()
		return working
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, leave := g.Enter(&worker{ctx})
	if g.Working() != ctx || elsewhere() != ctx {
		t.Errorf("on its goroutine: %v, on one that it started: %v", g.Working(), elsewhere())
	}
	var all sync.WaitGroup
	all.Go(func() {
		if got := elsewhere(); got != nil {
			t.Errorf("two goroutines away: %v", got)
		}
	})
	all.Wait()
	leave()
	if g.Working() != nil || elsewhere() != nil {
		t.Errorf("after it has left: %v, %v", g.Working(), elsewhere())
	}
}
