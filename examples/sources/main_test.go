// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSources_ATickerFindsWhatTheChannelDoesNotBring runs in a bubble: time passes only where the
// test sleeps.
func TestSources_ATickerFindsWhatTheChannelDoesNotBring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		write := func(name string) {
			t.Helper()
			if err := root.WriteFile(name, []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// has waits until the controller has nothing left to do.
		has := func(name string, want bool) {
			t.Helper()
			synctest.Wait()
			if _, err := root.Stat(name); (err == nil) != want {
				t.Errorf("%s exists: %v, want %v", name, !want, want)
			}
		}
		c, requests := program(root)
		ctx, stop := context.WithCancel(t.Context())
		result := make(chan error, 1)

		write("first")
		go func() { result <- c.Run(ctx) }()
		has("first.sha256", true) // the first poll is at once

		write("requested")
		write("found")
		if err := requests.Send(ctx, "requested"); err != nil {
			t.Fatal(err)
		}
		has("requested.sha256", true)
		has("found.sha256", false)
		if err := root.Remove("first"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * interval)
		has("found.sha256", true)
		has("first.sha256", false)

		write("last")
		if err := requests.Send(ctx, ""); err != nil {
			t.Fatal(err)
		}
		has("last.sha256", true)

		stop()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}
