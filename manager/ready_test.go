// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/manager"
)

func TestWaitReady_SaysWhyNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := manager.New(newAPI().Config(), manager.Options{Name: "test", Logger: silent})
		m.Add(&fakeController{name: "maps", diary: &diary{}, synced: make(chan struct{})})
		limit, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ctx, stop := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- m.Run(ctx) }()
		err := m.WaitReady(limit)
		if want := `the manager "test" is not ready: the controller "maps" waits for its sources: context deadline exceeded`; err == nil ||
			err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %s", err, want)
		}
		stop()
		if err := m.WaitReady(t.Context()); err == nil || err.Error() != `the manager "test" has stopped before it was ready` {
			t.Error(err)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	m := manager.New(newAPI().Config(), manager.Options{Name: "wrong", Logger: silent})
	m.Add(nil)
	result := make(chan error, 1)
	go func() { result <- m.Run(t.Context()) }()
	if err, want := m.WaitReady(t.Context()), <-result; want == nil || !errors.Is(err, want) {
		t.Errorf("got %v, want Run's error, %v", err, want)
	}
}
