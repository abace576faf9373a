// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestInfoOf_ReconcileAndHooksReadTheSame: the hooks before and after a Reconcile, and the
// Reconcile itself, read the same description from their contexts. It agrees with the log and the
// snapshot.
func TestInfoOf_ReconcileAndHooksReadTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		var before, in, after controller.Info
		var c *controller.Controller[clusterKey]
		ctx, cancel := context.WithCancel(t.Context())
		of := func(ctx context.Context) controller.Info {
			info, ok := controller.InfoFromContext(ctx)
			testkit.Equal(t, ok, true, "the context has no Info")
			return info
		}
		runs := 0
		c = controller.New("info", controller.Func[clusterKey](func(ctx context.Context, _ clusterKey) (controller.Result, error) {
			if runs++; runs == 1 {
				return controller.Result{}, errFlaky
			}
			child, end := context.WithTimeout(ctx, time.Hour)
			defer end()
			in = of(child)
			if r := c.Snapshot().Running[0]; r.Class != in.Class || r.Tenant != in.Tenant || r.ReconcileID != in.ReconcileID {
				t.Errorf("the snapshot has %+v", r)
			}
			cancel()
			controller.Logger(ctx).Info("seen")
			return controller.Result{}, nil
		}), controller.Options{
			NamespaceTenants: true, Logger: slog.New(slog.NewTextHandler(&out, nil)),
			Hook: hook.Join(
				hook.On(func(e *hook.Reconciling) {
					before = of(e.Context)
					testkit.Equal(t, before.Controller, e.Controller, fmt.Sprintf("Reconciling of %s has the Info of", e.Controller))
				}),
				hook.On(func(e *hook.Reconciled) { after = of(e.Context) }),
			),
		})
		c.Queue().AddWith(clusterKey{"east", "a"}, workqueue.AddOptions{Class: workqueue.Interactive, Reason: workqueue.Reason{Source: "test", Event: "first"}})
		ok(t, c.Run(ctx))
		testkit.DeepEqual(t, before, in)
		testkit.DeepEqual(t, in, after)
		if in.Controller != "info" || in.Key != any(clusterKey{"east", "a"}) || in.Attempt != 2 || in.Class != workqueue.Interactive || in.Tenant != "east" ||
			in.Queued.IsZero() || len(in.Reasons) != 1 || in.Reasons[0].Event != workqueue.EventRetry {
			t.Errorf("the Info is %+v", in)
		}
		if want := "msg=seen controller=info key=\"{east a}\" attempt=2 reconcileID=" + in.ReconcileID + " class=interactive tenant=east"; !strings.Contains(out.String(), want) {
			t.Errorf("the log has no %s\n%s", want, out.String())
		}
	})
	if info, ok := controller.InfoFromContext(t.Context()); ok || info.Key != nil {
		t.Errorf("another context has the Info %+v", info)
	}
}

// TestReconciling_ReturnsTheContextOfTheReconcile: as tracing needs it. A context that is not
// derived from the hook's argument is refused, because requests would lose their term.
func TestReconciling_ReturnsTheContextOfTheReconcile(t *testing.T) {
	type span struct{}
	for _, test := range []struct {
		name    string
		returns func(ctx context.Context) context.Context
		want    any
		log     bool
	}{
		{"derived", func(ctx context.Context) context.Context { return context.WithValue(ctx, span{}, "s") }, "s", false},
		{"nil", func(context.Context) context.Context { return nil }, nil, false},
		{"foreign", func(context.Context) context.Context { return context.WithValue(context.Background(), span{}, "s") }, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out testkit.Buffer
				var in, after any
				ctx, cancel := context.WithCancel(t.Context())
				c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
					in = ctx.Value(span{})
					_, ok := controller.InfoFromContext(ctx)
					testkit.Equal(t, ok, true, "the Reconcile's context has no Info")
					cancel()
					return controller.Result{}, nil
				}, controller.Options{Logger: slog.New(slog.NewTextHandler(&out, nil)), Hook: hook.Join(
					hook.On(func(e *hook.Reconciling) {
						e.Context = test.returns(e.Context)
					}),
					hook.On(func(e *hook.Reconciled) { after = e.Context.Value(span{}) }),
				)})
				c.Queue().Add("a")
				ok(t, c.Run(ctx))
				testkit.Equal(t, in, test.want)
				testkit.Equal(t, after, test.want)
				testkit.Equal(t, strings.Contains(out.String(), "set a Context"), test.log, "the log has", out.String())
			})
		})
	}
}

// TestMaxAttempts_UntilTheNextEvent: after the limit there is one line, one GaveUp, and no
// retry. The next event starts with the first attempt. Panics count.
func TestMaxAttempts_UntilTheNextEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		var seen outcomes
		var gave []hook.GaveUp
		hooks := hook.Join(seen.hooks(), hook.On(func(g *hook.GaveUp) { gave = append(gave, *g) }))
		var attempts []int
		c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
			info, _ := controller.InfoFromContext(ctx)
			attempts = append(attempts, info.Attempt)
			if len(attempts) == 6 {
				panic("the last one")
			}
			return controller.Result{RequeueAfter: time.Second}, errFlaky
		}, controller.Options{MaxAttempts: 3, Logger: slog.New(slog.NewTextHandler(&out, nil)), Hook: hooks})
		stop := start(t, c)
		for range 2 {
			c.Queue().Add("a")
			time.Sleep(24 * time.Hour)
		}
		if e := c.Snapshot().Keys; len(e) != 1 || !e[0].LastError.Terminal || e[0].LastError.Err != "panic: the last one" {
			t.Errorf("the snapshot has %+v", e)
		}
		ok(t, stop())
		if len(attempts) != 6 || attempts[2] != 3 || attempts[3] != 1 || attempts[5] != 3 {
			t.Errorf("the attempts were %v", attempts)
		}
		for i, r := range seen.all {
			testkit.Equal(t, r.GaveUp, i%3 == 2, i)
			testkit.Equal(t, r.Outcome, map[bool]hook.Outcome{false: hook.Failed, true: hook.Panicked}[i == 5], i)
		}
		if len(gave) != 2 || gave[0].Attempts != 3 || gave[0].Key != "a" || gave[0].Err != errFlaky || gave[0].ReconcileID == "" || gave[0].Controller != "test" {
			t.Errorf("GaveUp was told %+v", gave)
		}
		testkit.Count(t, out.String(), `level=ERROR msg="reconcile failed too often; not retried until its next event"`, 2)
		testkit.Count(t, out.String(), "attempt=3", 2)
		testkit.NotContains(t, out.String(), "attempts=")
	})
}
