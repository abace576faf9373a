// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
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
		testkit.Equal(t, fmt.Sprint(err), `the manager "test" is not ready: the controller "maps" waits for its sources: context deadline exceeded`)
		testkit.ErrorIs(t, err, context.DeadlineExceeded)
		stop()
		testkit.Equal(t, fmt.Sprint(m.WaitReady(t.Context())), `the manager "test" has stopped before it was ready`)
		testkit.Equal(t, <-result, nil)
	})
	m := manager.New(newAPI().Config(), manager.Options{Name: "wrong", Logger: silent})
	m.Add(nil)
	result := make(chan error, 1)
	go func() { result <- m.Run(t.Context()) }()
	if err, want := m.WaitReady(t.Context()), <-result; want == nil || !errors.Is(err, want) {
		t.Errorf("got %v, want Run's error, %v", err, want)
	}
}
