// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
)

// beside runs main and, while main runs, others. When main has returned, it stops them and waits
// for their end. If one of them returns earlier, main's context ends. So when main cleans up after
// an interrupt, the operator still runs.
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
			return failed // the reason why main was cancelled
		}
		return errors.Join(err, failed)
	}
	return err
}
