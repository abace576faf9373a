// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/manager"
)

const (
	// checkLimit ends the context of a check, checkTimeout fails it. Both are below a probe's
	// default timeout of a second, so that the kubelet gets the name of a check that hangs.
	checkLimit   = 700 * time.Millisecond
	checkTimeout = 800 * time.Millisecond
)

// probe is the state of one check under one path.
type probe struct {
	check   manager.Check
	calls   caller
	failing atomic.Bool // as logged last
}

// call outlives the context of its request, because later requests may wait for it.
func (p *probe) call(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkLimit)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it has panicked: %v", v)
			logging.Of(ctx).Error("a health check has panicked", "check", p.check.Name(), "panic", v, "stack", string(debug.Stack()))
		}
	}()
	if err = p.check.Check(ctx); err != nil {
		_ = err.Error() // may panic
	}
	return err
}

func (p *probe) log(ctx context.Context, path string, err error) {
	failing := err != nil && !errors.As(err, new(manager.Remark))
	switch log := logging.Of(ctx); {
	case p.failing.Swap(failing) == failing:
	case failing && path != "/readyz":
		log.Warn("a health check fails", "path", path, "check", p.check.Name(), "err", err)
	case failing:
		log.Info("not ready", "check", p.check.Name(), "err", err)
	default:
		log.Info("a health check has recovered", "path", path, "check", p.check.Name())
	}
}

type call struct {
	began time.Time
	done  chan struct{}
	err   error // set before done is closed
}

type caller struct{ last atomic.Pointer[call] }

// begin returns the last call if that still runs, or began less than pause ago.
func (c *caller) begin(all *sync.WaitGroup, pause time.Duration, f func() error) *call {
	last := c.last.Load()
	if last != nil && (!run.Closed(last.done) || time.Since(last.began) < pause) {
		return last
	}
	next := &call{began: time.Now(), done: make(chan struct{}), err: fmt.Errorf("it %w", run.ErrExited)}
	if !c.last.CompareAndSwap(last, next) {
		return c.last.Load()
	}
	all.Go(func() {
		defer close(next.done)
		next.err = f()
	})
	return next
}

// returned waits at most until limit after the call began.
func (c *call) returned(limit time.Duration) bool {
	select {
	case <-c.done:
	case <-time.After(time.Until(c.began.Add(limit))):
	}
	return run.Closed(c.done)
}

func (c *call) outcome(limit time.Duration) error {
	if !c.returned(limit) {
		return fmt.Errorf("it has not answered for %s", time.Since(c.began).Round(time.Millisecond))
	}
	return c.err
}
