// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// inbox is a source as a user writes it.
type inbox struct {
	mails  chan string
	status source.Status
}

func (i *inbox) String() string         { return "inbox" }
func (i *inbox) Status() *source.Status { return &i.status }

func (i *inbox) Run(ctx context.Context, to source.Sink[string]) error {
	for {
		select {
		case mail := <-i.mails:
			if mail == "" {
				i.status.SetFailing(errors.New("no such server"))
				continue
			}
			to.Queue.AddAll([]string{mail}, workqueue.AddOptions{})
			i.status.SetSynced()
		case <-ctx.Done():
			return nil
		}
	}
}

// TestStatus_OfAnOwnSource: the zero value waits, and SetSynced and SetFailing end the waits.
func TestStatus_OfAnOwnSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, q := &inbox{mails: make(chan string)}, &keys{}
		var src source.Source[string] = in
		s := src.Status()
		waits := func(wait func(context.Context) error) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return wait(ctx) != nil
		}
		want := func(state string, settled, synced bool) {
			t.Helper()
			synctest.Wait()
			if got := s.State().String(); got != state || waits(s.Settled) == settled || waits(s.WaitForSync) == synced || (s.Stale() == nil) != (state == "synced") {
				t.Errorf("the state is %s, stale %v, want %s", got, s.Stale(), state)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- src.Run(ctx, source.Sink[string]{Queue: q}) }()
		want("syncing", false, false)
		in.mails <- ""
		want("failing: no such server", true, false)
		in.mails <- "a"
		want("synced", true, true)
		in.mails <- ""
		want("failing: no such server", true, true)
		in.mails <- "b"
		want("synced", true, true)
		stop()
		testkit.Equal(t, <-ended, nil, "Run")
		testkit.Equal(t, q.take(), "a b", "Run")
	})
}
