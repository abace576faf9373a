// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
)

// phase is one of a controller's functions. It can be ended for good.
type phase struct {
	run  func(take, work context.Context) error // once at a time; does nothing when it was ended
	end  context.CancelFunc                     // ends the call under way
	idle chan struct{}                          // has an element while no call is under way
	err  error                                  // of the call that was ended; guarded by idle
}

func newPhase(f func(take, work context.Context) error) *phase {
	over, end := context.WithCancel(context.Background())
	p := &phase{end: end, idle: make(chan struct{}, 1)}
	p.idle <- struct{}{}
	p.run = func(take, work context.Context) error {
		<-p.idle
		defer func() { p.idle <- struct{}{} }()
		take, stop := context.WithCancel(take)
		defer stop()
		defer context.AfterFunc(over, stop)()
		if over.Err() != nil {
			return nil
		}
		err := f(take, work)
		if over.Err() == nil {
			return err
		}
		if !errors.Is(err, context.Canceled) { // it was asked to stop, and says so
			p.err = err
		}
		return nil
	}
	return p
}

// stop ends the phase for good. It waits until the call under way has returned, or ctx is done.
func (p *phase) stop(ctx context.Context) error {
	p.end()
	select {
	case <-p.idle:
		defer func() { p.idle <- struct{}{} }()
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("it has not stopped yet: %w", context.Cause(ctx))
	}
}
