// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
)

func TestBeside(t *testing.T) {
	untilEnd := func(ctx context.Context) error { <-ctx.Done(); return nil }
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		main, other func(context.Context) error
		want        error
	}{
		"main is done":               {func(context.Context) error { return nil }, untilEnd, nil},
		"main fails":                 {func(context.Context) error { return broken }, untilEnd, broken},
		"the other fails":            {waits, func(context.Context) error { return broken }, broken},
		"the other fails at the end": {func(context.Context) error { return nil }, func(ctx context.Context) error { <-ctx.Done(); return broken }, broken},
	} {
		t.Run(name, func(t *testing.T) {
			err := beside(t.Context(), c.main, c.other)
			if !errors.Is(err, c.want) {
				t.Errorf("it returned %v, want %v", err, c.want)
			}
			if c.want == broken && errors.Is(err, context.Canceled) {
				t.Errorf("%v says also that it was cancelled, which is only a consequence", err)
			}
		})
	}
}

// When it is interrupted, main can still clean up while the other runs.
func TestBesideKeepsTheOtherForMain(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	otherEnded := make(chan struct{})
	err := beside(ctx, func(ctx context.Context) error {
		interrupt()
		<-ctx.Done()
		select {
		case <-otherEnded:
			t.Error("the other has ended before main")
		default:
		}
		return ctx.Err()
	}, func(ctx context.Context) error {
		<-ctx.Done()
		close(otherEnded)
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it returned %v", err)
	}
	<-otherEnded
}
