// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// phase is one of a controller's functions. It runs once at a time, and can be ended for good.
type phase struct {
	mu       sync.Mutex // guards what follows
	over     bool
	stop     context.CancelFunc // ends the call under way
	returned chan struct{}      // closed when that has returned, with err
	err      error              // if it was ended
}

// run calls f, with a context that ends when the phase does, unless it has been ended.
func (p *phase) run(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	returned := make(chan struct{})
	if !p.begin(stop, returned) {
		return nil
	}
	defer close(returned)
	return p.result(f(ctx))
}

func (p *phase) begin(stop context.CancelFunc, returned chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop, p.returned = stop, returned
	return !p.over
}

// result keeps the error for end, if it is that which wants to know.
func (p *phase) result(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		return err
	}
	if !errors.Is(err, context.Canceled) { // it was asked to stop, and says so
		p.err = err
	}
	return nil
}

// end has the call under way return, and waits for that until ctx ends. There will be no other.
func (p *phase) end(ctx context.Context) error {
	p.mu.Lock()
	p.over = true
	stop, returned := p.stop, p.returned
	p.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	select {
	case <-returned:
	case <-ctx.Done():
		return fmt.Errorf("it has not stopped yet: %w", context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
