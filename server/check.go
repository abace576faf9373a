// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/internal/run"
)

const (
	// checkLimit is when the context of a check ends, and checkTimeout when the check has failed. It
	// is less than a probe's default timeout of a second, so that the kubelet reads what hangs.
	checkLimit   = 700 * time.Millisecond
	checkTimeout = 800 * time.Millisecond
)

// Check is one named check of a Health. It remembers from one request to the next whether it
// fails, and a call that has not returned. NewCheck makes one.
type Check struct {
	name string
	ask  func(ctx context.Context) error

	mu      sync.Mutex // guards what follows
	current *asking
	failing bool // as last logged
}

// NewCheck makes a check. ask returns nil or a Remark if all is well. Its context ends after 700
// ms, which is less than a probe's default timeout of a second. A check fails if ask goes on longer
// or panics. It is not called again before it has returned.
func NewCheck(name string, ask func(ctx context.Context) error) *Check {
	return &Check{name: name, ask: ask}
}

// Name returns the name of the check.
func (c *Check) Name() string { return c.name }

// Remark is what a check that is well returns to add a sentence to the verbose answer.
type Remark string

// Error implements error.
func (r Remark) Error() string { return string(r) }

// asking is a call of a check.
type asking struct {
	began time.Time
	done  chan struct{} // closed when it has returned
	err   error         // then
}

// begin calls the check in a goroutine of calls, or joins a call that is under way.
func (c *Check) begin(ctx context.Context, calls *sync.WaitGroup) *asking {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		return c.current
	}
	a := &asking{began: time.Now(), done: make(chan struct{}), err: fmt.Errorf("it %w", run.ErrExited)}
	c.current = a
	ctx = context.WithoutCancel(ctx) // others may wait for it, too
	calls.Go(func() {
		defer c.returned(a)
		ctx, cancel := context.WithTimeout(ctx, checkLimit)
		defer cancel()
		a.err = c.call(ctx)
	})
	return a
}

func (c *Check) returned(a *asking) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(a.done)
	c.current = nil
}

// call calls the check. A panic is an error; the log has its stack.
func (c *Check) call(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it has panicked: %v", p)
			loggerOf(ctx).Error("a health check has panicked", "check", c.name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if err = c.ask(ctx); err != nil {
		_ = err.Error() // may panic, too
	}
	return err
}

// result waits until the call has returned or has had its time.
func (a *asking) result() error {
	late := time.NewTimer(time.Until(a.began.Add(checkTimeout)))
	defer late.Stop()
	select {
	case <-a.done:
		return a.err
	case <-late.C:
	}
	select {
	case <-a.done: // while others were waited for
		return a.err
	default:
		return fmt.Errorf("it has not answered for %s", time.Since(a.began).Round(time.Millisecond))
	}
}

// log says when a check fails that did not, and when it is well again.
func (c *Check) log(ctx context.Context, path string, err error) {
	failing := err != nil && !errors.As(err, new(Remark))
	c.mu.Lock()
	turned := failing != c.failing
	c.failing = failing
	c.mu.Unlock()
	switch log := loggerOf(ctx); {
	case !turned:
	case failing && path != "/readyz":
		log.Warn("a health check fails", "path", path, "check", c.name, "err", err)
	case failing:
		log.Info("not ready", "check", c.name, "err", err)
	default:
		log.Info("a health check is well again", "path", path, "check", c.name)
	}
}
