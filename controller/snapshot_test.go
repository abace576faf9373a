// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestSnapshot is complete, and can be encoded.
func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := warm(t, func(ctx context.Context, key string) (controller.Result, error) {
			switch key {
			case "fails":
				return controller.Result{}, controller.RetryAfter(errFlaky, time.Hour)
			case "ended":
				return controller.Result{}, controller.Terminal(errors.New("never"))
			}
			<-ctx.Done()
			return controller.Result{}, ctx.Err()
		})
		secrets := &reads{name: "secrets", synced: make(chan struct{})}
		close(secrets.synced)
		c.Reads(secrets, &reads{name: "nodes", synced: make(chan struct{}), trouble: errors.New("forbidden")})
		c.Queue().AddAll([]string{"fails", "ended", "b", "a"}, workqueue.AddOptions{Reason: workqueue.Reason{Source: "test", Event: "x"}})
		c.PauseKey("z")
		c.PauseKey("y")
		c.SetLogLevel("a", slog.LevelDebug)
		take, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Lead(take, take) }()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		c.Pause()
		s := c.Snapshot()
		switch {
		case s.Name != "test" || s.Workers != 2 || !s.Leading || !s.Paused || s.Queue.Name != "test" || s.Queue.Len.Held != 2:
			t.Errorf("got %+v", s)
		case len(s.Running) != 2 || s.Running[0].Key != "a" || s.Running[1].Key != "b" || !s.Running[0].Slow || !s.Running[0].Since.Equal(began):
			t.Errorf("running: %+v", s.Running)
		case s.Running[0].Attempt != 1 || s.Running[0].ReconcileID == "" || len(s.Running[0].Reasons) != 1 || s.Running[0].Reasons[0].Event != "x":
			t.Errorf("running: %+v", s.Running)
		case len(s.Keys) != 5: // in the order of their names
			t.Errorf("keys: %+v", s.Keys)
		case s.Keys[0].Key != "a" || *s.Keys[0].LogLevel != slog.LevelDebug || s.Keys[0].PausedBy != nil || s.Keys[0].LastError != nil:
			t.Errorf("log level: %+v", s.Keys[0])
		case s.Keys[1].Key != "ended" || !s.Keys[1].LastError.Terminal || s.Keys[2].LastError.Err != errFlaky.Error():
			t.Errorf("last errors: %+v", s.Keys[1:3])
		case s.Keys[3].Key != "y" || s.Keys[3].PausedBy[0] != "PauseKey" || s.Keys[4].Key != "z":
			t.Errorf("paused: %+v", s.Keys[3:])
		case len(s.Reads) != 2 || s.Reads[0] != (controller.Read{What: "secrets", State: "synced"}) || s.Reads[1].State != "forbidden":
			t.Errorf("reads: %+v", s.Reads)
		case len(s.Sources) != 1 || s.Progress.Running != 2 || s.Progress.Longest != 2*time.Minute:
			t.Errorf("got %+v, %+v", s.Sources, s.Progress)
		}
		text, err := json.MarshalIndent(c, "", "  ")
		ok(t, err)
		var back struct {
			Running []struct{ Key, Class string }
		}
		ok(t, json.Unmarshal(text, &back))
		testkit.HasPrefix(t, fmt.Sprint(back.Running), "[{a normal}")
		for _, want := range []string{`"LogLevel": "DEBUG"`, `"PausedBy": [`, `"Err": "` + errFlaky.Error(), `"Source": "Fake(keys)"`} {
			testkit.Contains(t, string(text), want, fmt.Sprintf("%s is not in", want))
		}
		stop()
		ok(t, <-ended)
		if s := c.Snapshot(); s.Leading || s.Running != nil || s.Workers != 2 {
			t.Errorf("between terms: %+v", s)
		}
		ok(t, c.cool())
	})
}
