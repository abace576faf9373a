// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/why"
)

// act asks for an action and returns the result or the error.
func act[K comparable](t *testing.T, c *controller.Controller[K], action, key string) string {
	t.Helper()
	result, err := c.Act(t.Context(), action, key, "alice")
	testkit.NotEqual(t, err == nil, result == "", action, key, fmt.Sprintf("%q, %v", result, err))
	if err != nil {
		return "error: " + err.Error()
	}
	return result
}

func begins(t *testing.T, got, want string) {
	t.Helper()
	if !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestAct: a key in a backoff is due at once. A paused one waits for its resume. The log has all.
func TestAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		seen := &calls{began: time.Now()}
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			if seen.note(key); key == "fails" {
				return controller.Result{}, controller.RetryAfter(errFlaky, time.Hour)
			}
			return controller.Result{}, nil
		}, controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		begins(t, act(t, c, "requeue", "fails"), `error: controller "test": the controller does not run yet; start its manager with Run`)
		c.Watch(newSource("keys", "fails", "idle"))
		stop := start(t, c)
		want := func(want string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			testkit.Equal(t, strings.Join(seen.keys, " "), want, "reconciled")
			seen.keys = nil
		}
		want("fails idle")
		for text, want := range map[string]string{"fails": "Error the last Reconcile failed, 1m0s ago; the next attempt is in 59m0s: ", "idle": "Done the last Reconcile succeeded 1m0s ago", "new": " "} {
			a, known := c.ExplainKey(text)
			testkit.Equal(t, known, text != "new", fmt.Sprintf("%s is known", text))
			begins(t, string(a.Reason)+" "+a.Cause, want)
			if known && (a.Controller != "test" || a.Key != text || !strings.Contains(strings.Join(a.Evidence, "\n"), "Reconcile until 2000-01-01T00:00:00Z, for <1ms: ")) {
				t.Errorf("%s: %+v", text, a)
			}
		}
		begins(t, act(t, c, "requeue", "fails"), "fails is due now")
		begins(t, act(t, c, "requeue", "idle"), "idle is due now") // it is only remembered
		want("fails idle")
		begins(t, act(t, c, "pause", "idle"), "idle is paused until it is resumed here, or this replica stops or loses the lead; a pause by the annotation setpoint.dev/paused lasts longer")
		begins(t, act(t, c, "pause", "idle"), "idle is paused until")
		begins(t, act(t, c, "requeue", "idle"), "idle is due when its pause ends; it is paused by alice (over HTTP since 2000-01-01T00:0")
		want("")
		begins(t, act(t, c, "resume", "idle"), "idle is resumed")
		want("idle")
		c.PauseKey("idle")
		begins(t, act(t, c, "resume", "idle"), `error: controller "test": idle is not paused over HTTP, but paused by PauseKey; remove the annotation setpoint.dev/paused with kubectl setpoint resume, or call ResumeKey`)
		act(t, c, "pause", "idle")
		begins(t, act(t, c, "resume", "idle"), "idle is still paused by PauseKey; remove the annotation")
		c.ResumeKey("idle")
		begins(t, act(t, c, "resume", "idle"), `error: controller "test": idle is not paused; requeue makes it due`)
		begins(t, act(t, c, "requeue", "new"), `error: controller "test": no key "new" is queued, in progress, failing or remembered; `)
		begins(t, act(t, c, "stop", "idle"), `error: controller "test": the action "stop" is unknown; use requeue, pause or resume`)
		for _, line := range []string{
			`level=INFO msg="did an action over HTTP" controller=test action=pause key=idle by=alice result="idle is paused until`,
			`level=INFO msg="refused an action over HTTP" controller=test action=requeue key=new by=alice err="no key`,
		} {
			testkit.Contains(t, lines.String(), line, fmt.Sprintf("the log lacks %s", line))
		}
		ok(t, stop())
	})
}

// TestAct_APauseEndsWithTheTerm: a standby refuses, and the next term of this process does not know
// the pause. PauseKey holds on.
func TestAct_APauseEndsWithTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{}
		c := warm(t, func(_ context.Context, key string) (controller.Result, error) {
			seen.note(key)
			return controller.Result{}, nil
		}, "a", "b")
		synctest.Wait()
		begins(t, act(t, c.Controller, "pause", "a"), `error: controller "test": this replica does not lead; ask the replica that leads`)
		begins(t, act(t, c.Controller, "pause", "unknown"), `error: controller "test": this replica does not lead; ask the replica that leads`)
		end := c.lead(t, time.Second)
		synctest.Wait()
		<-c.settled
		<-c.settled
		act(t, c.Controller, "pause", "a")
		c.PauseKey("b")
		end()
		if s := c.Snapshot(); len(s.Keys) != 1 || s.Keys[0].Key != "b" {
			t.Errorf("paused after the term: %+v", s.Keys)
		}
		c.Queue().Add("a")
		c.Queue().Add("b")
		end = c.lead(t, time.Second)
		synctest.Wait()
		<-c.settled
		slices.Sort(seen.keys)
		testkit.Equal(t, strings.Join(seen.keys, ""), "aab", fmt.Sprintf("reconciled %v", seen.keys))
		end()
		ok(t, c.cool())
	})
}

// TestAct_APauseEndsWithTheObject: until then, why names who has paused the key, and what ends it.
func TestAct_APauseEndsWithTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMarks(t, func(c *cache.Cache) source.Source[types.NamespacedName] {
			return source.Kind(cache.For[*corev1.ConfigMap](c), handler.Self())
		})
		m.start(t)
		m.put(t, marked("a", "1"), "a create")
		act(t, m.Controller, "pause", "default/a")
		m.put(t, marked("a", "2"), "")
		a := m.Explain(t.Context(), why.Object{Kind: "ConfigMap", Namespace: "default", Name: "a"})[0]
		begins(t, a.Cause, "the key is paused by alice (over HTTP since 2000-01-01T00:00:01Z)")
		testkit.Equal(t, a.Reason, why.Paused, "why")
		testkit.Equal(t, a.Remedy, "resume it on the page of /debug/", "why")
		m.put(t, marked("a", "2", controller.PausedAnnotation, "yes"), "")
		a = m.Explain(t.Context(), why.Object{Kind: "ConfigMap", Namespace: "default", Name: "a"})[0]
		begins(t, a.Remedy, "resume it on the page of /debug/, and remove the annotation")
		m.api.Remove(sim.ConfigMaps, "default", "a")
		m.want(t, "a update, a update, a delete")
		if s := m.Snapshot(); s.Keys != nil {
			t.Errorf("left: %+v", s.Keys)
		}
	})
}
