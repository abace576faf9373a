// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

type hanging struct {
	calls atomic.Int32
	free  chan struct{}
}

func (c *hanging) Name() string { return "hanging" }

func (c *hanging) Check(context.Context) error {
	c.calls.Add(1)
	<-c.free
	return nil
}

// growing has no check for its first caller, which is slow, and one for all others.
type growing struct {
	asked atomic.Int32
	first chan struct{} // closed when the first caller asks
	check manager.Check
}

func (g *growing) Livez() []manager.Check { return nil }

func (g *growing) Readyz() []manager.Check {
	if g.asked.Add(1) == 1 {
		close(g.first)
		<-time.After(50 * time.Millisecond)
		return nil
	}
	return []manager.Check{g.check}
}

// TestHealth_AnOlderListForgetsNoCheck: a check that hangs is called once.
func TestHealth_AnOlderListForgetsNoCheck(t *testing.T) {
	c := &hanging{free: make(chan struct{})}
	g := &growing{check: c, first: make(chan struct{})}
	var calls, asking sync.WaitGroup
	h := &health{checks: g, calls: &calls}
	ask := func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
	}
	asking.Go(ask)
	<-g.first
	asking.Go(ask)
	asking.Wait()
	ask()
	testkit.Equal(t, c.calls.Load(), 1, "it was called")
	close(c.free)
	calls.Wait()
}
