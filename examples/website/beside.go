// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
)

// beside runs main, and the others beside it for as long as main runs: they are stopped when it has returned, and joined.
// If one of them returns earlier, main's context ends. So what main cleans up when it is interrupted, it cleans up with the
// operator still there.
func beside(ctx context.Context, main func(context.Context) error, others ...func(context.Context) error) error {
	mainCtx, endMain := context.WithCancel(ctx)
	defer endMain()
	otherCtx, endOthers := context.WithCancel(context.WithoutCancel(ctx))
	defer endOthers()
	errs := make([]error, len(others))
	var running sync.WaitGroup
	for i, other := range others {
		running.Go(func() {
			defer endMain()
			errs[i] = other(otherCtx)
		})
	}
	err := main(mainCtx)
	endOthers()
	running.Wait()
	if failed := errors.Join(errs...); failed != nil {
		if ctx.Err() == nil && errors.Is(err, context.Canceled) {
			return failed // it is why main was cancelled
		}
		return errors.Join(err, failed)
	}
	return err
}
