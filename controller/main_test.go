// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource delivers keys on demand.
type fakeSource struct {
	name    string
	initial []string      // delivered at the start
	hold    chan struct{} // if set, the source is not synced until it is closed
	trouble error         // if set, why the source is not synced while it is held: it settles
	wrong   error         // result of Validate
	broken  error         // immediate result of Run
	ends    bool          // Run returns at once, without an error
	fails   chan error    // if set, brings a later result of Run
	ended   atomic.Bool   // Run has returned

	status source.Status
	queue  chan source.Sink[string] // gets the sink when the source runs
}

func newSource(name string, initial ...string) *fakeSource {
	return &fakeSource{name: name, initial: initial, queue: make(chan source.Sink[string], 1)}
}

func (f *fakeSource) Validate() error        { return f.wrong }
func (f *fakeSource) Status() *source.Status { return &f.status }
func (f *fakeSource) String() string         { return "Fake(" + f.name + ")" }

func (f *fakeSource) Run(ctx context.Context, to source.Sink[string]) error {
	defer f.ended.Store(true)
	if f.broken != nil || f.ends {
		return f.broken
	}
	to.Queue.AddAll(f.initial, workqueue.AddOptions{Class: workqueue.Background})
	if f.trouble != nil {
		f.status.SetFailing(f.trouble)
	}
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return nil
		}
	}
	f.status.SetSynced()
	f.queue <- to
	select {
	case err := <-f.fails:
		return err
	case <-ctx.Done():
		return nil
	}
}

func done(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reads is a Readable that is synced when it is closed.
type reads struct {
	name    string
	synced  chan struct{}
	err     error
	trouble error // if set, why it is not synced until it is closed: it settles
}

func (r *reads) Settled(ctx context.Context) error {
	if r.trouble != nil {
		return nil
	}
	return r.WaitForSync(ctx)
}

func (r *reads) Stale() error {
	select {
	case <-r.synced:
		return nil
	default:
		return r.trouble
	}
}

func (r *reads) String() string { return r.name }

func (r *reads) WaitForSync(ctx context.Context) error {
	if r.err != nil || done(r.synced) {
		return r.err
	}
	select {
	case <-r.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// silent discards log lines.
var silent = slog.New(slog.DiscardHandler)

// start runs a controller. stop stops it, waits, and returns its error.
func start(t *testing.T, c *controller.Controller[string]) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// ok fails the test if err is not nil.
func ok(t *testing.T, err error) {
	t.Helper()
	testkit.Equal(t, err, nil)
}

// calls records when keys were reconciled.
type calls struct {
	began time.Time
	mu    sync.Mutex
	at    []time.Duration
	keys  []string
}

func (c *calls) note(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Since(c.began))
	c.keys = append(c.keys, key)
	return len(c.at)
}

func (c *calls) n() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.at)
}

// outcomes records how Reconciles ended.
type outcomes struct {
	mu  sync.Mutex
	all []hook.Reconciled
}

func (o *outcomes) hooks() *hook.Hook {
	return hook.On(func(r *hook.Reconciled) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, *r)
	})
}

func (o *outcomes) list() []hook.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []hook.Outcome
	for _, r := range o.all {
		list = append(list, r.Outcome)
	}
	return list
}

func (o *outcomes) last() hook.Reconciled {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[len(o.all)-1]
}
