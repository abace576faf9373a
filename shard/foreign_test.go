// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/term"
)

// named makes a replica of a program, in the group of a Lease.
func (f *fleet) named(name, group, program string, log *testkit.Buffer) *replica {
	f.t.Helper()
	r := &replica{t: f.t, name: name, done: make(chan error, 1)}
	cfg := f.api.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return network{rt, r} })
	e := election()
	e.Lease, e.Identity, e.Labels = group, name, map[string]string{shard.ProgramLabel: program}
	var err error
	r.Group, err = shard.New(cfg, shard.Options{Election: e})
	testkit.NoError(f.t, err)
	f.runIn(logr.NewContextWithSlogLogger(f.t.Context(), slog.New(slog.NewTextHandler(log, nil))), r)
	return r
}

// TestP1_ARenamedLease: replicas with the new name of the group's Lease work when those with the
// old one have left. Another program does not wait.
func TestP1_ARenamedLease(t *testing.T) {
	for program, waits := range map[string]bool{"web-operator": true, "another": false} {
		t.Run(program, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testkit.Buffer
				f := newFleet(t)
				old := f.named("old", "web", "web-operator", &log)
				time.Sleep(time.Minute)
				renamed := f.named("new", "website", program, &log)
				time.Sleep(5*time.Minute - time.Second/2)
				synctest.Wait()
				testkit.Equal(t, len(renamed.owns()) == 0, waits, "it owns no slot")
				testkit.Equal(t, len(old.owns()), term.Slots, "the old replica owns slots")
				s := renamed.Status()
				testkit.Equal(t, s.Standby, waits)
				testkit.Equal(t, strings.Contains(s.Trouble, "the group web of the same program (web-operator)"), waits, s.Trouble)
				testkit.Equal(t, lines(&log, "waiting until the members of another group") == 5, waits, &log)
				old.stop()
				ended(t, old)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				testkit.Equal(t, len(renamed.owns()), term.Slots, "at the end, the new replica owns slots")
				renamed.stop()
				ended(t, renamed)
			})
		})
	}
}

// TestP1_ARenamedLeaseOfCrashedMembers: they are waited for together, and once.
func TestP1_ARenamedLeaseOfCrashedMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Buffer
		f := newFleet(t)
		defer f.end()
		for _, name := range []string{"a", "b", "c"} {
			r := f.named(name, "web", "web-operator", &log)
			defer r.stop()
		}
		time.Sleep(time.Minute)
		for _, r := range f.all {
			r.cut.Store(true)
		}
		f.api.CutWatches()
		f.all = nil
		began := time.Now()
		renamed := f.named("new", "website", "web-operator", &log)
		f.passUntil("the new one", time.Minute, func(counts map[string]int) bool { return counts["new"] == term.Slots })
		if took := time.Since(began); took < 15*time.Second || took > 20*time.Second {
			t.Errorf("the new group works after %s", took)
		}
		renamed.stop()
		ended(t, renamed)
		began = time.Now()
		f.named("newer", "website", "web-operator", &log)
		f.passUntil("the next one", time.Minute, func(counts map[string]int) bool { return counts["newer"] == term.Slots })
		testkit.AtMost(t, time.Since(began), 5*time.Second)
	})
}

// TestM1_AStopWhileALeaseIsRenamed: Run ends soon, also if the request for the Leases hangs.
func TestM1_AStopWhileALeaseIsRenamed(t *testing.T) {
	for name, hangs := range map[string]bool{"answers": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testkit.Buffer
				f := newFleet(t)
				defer f.end()
				f.named("old", "web", "web-operator", &log)
				time.Sleep(time.Minute)
				on, free := &atomic.Bool{}, make(chan struct{})
				on.Store(hangs)
				cfg := f.api.Config()
				ofProgram := func(r *http.Request) bool { return strings.Contains(r.URL.RawQuery, "setpoint.dev%2Fprogram") }
				cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return deaf{rt, ofProgram, on, free} })
				e := election()
				e.Lease, e.Identity, e.Labels = "website", "new", map[string]string{shard.ProgramLabel: "web-operator"}
				g, err := shard.New(cfg, shard.Options{Election: e})
				testkit.NoError(t, err)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- g.Run(ctx, func(context.Context, context.Context) error { return nil }) }()
				time.Sleep(2 * time.Second)
				stop()
				began := time.Now()
				err = <-done
				testkit.Equal(t, err != nil, hangs, err)
				testkit.AtMost(t, time.Since(began), 10*time.Second)
				close(free)
			})
		})
	}
}
