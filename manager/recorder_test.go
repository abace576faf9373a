// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/term"
)

// fakeRecorder counts calls. A nil function returns nil, and a nil run waits.
type fakeRecorder struct {
	run, flush      func(context.Context) error
	closed, flushed atomic.Int32
}

func (r *fakeRecorder) Validate() error { return nil }

func (r *fakeRecorder) Run(ctx context.Context) error {
	if r.run != nil {
		return r.run(ctx)
	}
	<-ctx.Done()
	return nil
}

func (r *fakeRecorder) Flush(ctx context.Context) error {
	r.flushed.Add(1)
	if r.flush != nil {
		return r.flush(ctx)
	}
	return ctx.Err()
}

func (r *fakeRecorder) Close(context.Context) error {
	r.closed.Add(1)
	return nil
}

// TestAddRecorder_IsClosedHoweverItEnds: a recorder has waiting events also after an error.
func TestAddRecorder_IsClosedHoweverItEnds(t *testing.T) {
	for name, run := range map[string]func(context.Context) error{
		"its context": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"an error":    func(context.Context) error { return errors.New("broken") },
		"a panic":     func(context.Context) error { panic("broken") },
		"early":       func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &fakeRecorder{run: run}
				m := newManager(newAPI(), nil)
				m.AddRecorder(r)
				stop, result := start(t, m)
				testkit.Pass(time.Minute)
				stop()
				err := result()
				if broken := name == "an error" || name == "a panic"; (err != nil) != broken || broken && !strings.Contains(err.Error(), "broken") {
					t.Errorf("Run returned %v", err)
				}
				testkit.Equal(t, r.closed.Load(), 1)
			})
		})
	}
}

// TestM4_APanicOfAFlush: the Lease is released, and the other recorder is flushed.
func TestM4_APanicOfAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, other := newAPI(), &fakeRecorder{}
		m := newManager(api, elected)
		m.AddRecorder(&fakeRecorder{flush: func(context.Context) error { panic("ouch") }})
		m.AddRecorder(other)
		m.AddLeaderOnly("work", func(ctx context.Context) error { <-ctx.Done(); return nil })
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		testkit.ErrorContains(t, m.FlushEvents(t.Context()), "panic: ouch", "FlushEvents returned")
		stop()
		ok(t, result())
		testkit.Equal(t, holder(api), "")
		testkit.Equal(t, other.flushed.Load(), 2)
		testkit.Equal(t, other.closed.Load(), 1)
	})
}

// TestFlushEvents_InParallel: a recorder that waits delays no other.
func TestFlushEvents_InParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), nil)
		late := errors.New("not called")
		m.AddRecorder(&fakeRecorder{flush: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
		m.AddRecorder(&fakeRecorder{flush: func(ctx context.Context) error { late = ctx.Err(); return nil }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testkit.NotEqual(t, m.FlushEvents(ctx), nil)
		testkit.Equal(t, late, nil)
	})
}

func TestAddRecorder_Mistakes(t *testing.T) {
	for want, add := range map[string]func(m *manager.Manager){
		"AddRecorder: the recorder is nil; events.For makes one":                 func(m *manager.Manager) { m.AddRecorder(nil) },
		"AddRecorder: the recorder is nil; events.For makes":                     func(m *manager.Manager) { m.AddRecorder((*events.Recorder)(nil)) },
		"AddRecorder: the recorder was added before; events.For adds it already": func(m *manager.Manager) { m.AddRecorder(events.For(m, events.Options{})) },
		"AddServer: the server is nil; server.Add makes one":                     func(m *manager.Manager) { m.AddServer(nil) },
		"AddServer: the server was added before; server.Add adds it already":     func(m *manager.Manager) { m.AddServer(addServer(m, serverOptions{Plain: true})) },
		`AddReadyzCheck: two checks are named "certificate-a-b"; give each check, `: func(m *manager.Manager) {
			addServer(m, serverOptions{Name: "a:b"})
			addServer(m, serverOptions{Name: "a b"})
		},
	} {
		m := newManager(newAPI(), nil)
		add(m)
		if err := m.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), `the manager "test" cannot run: `+want) {
			t.Errorf("Run returned %v\nwant %s", err, want)
		}
	}
}

var _ term.Recorder = (*fakeRecorder)(nil)
