// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// failingFor runs a controller over one ConfigMap for a time, and returns the Events.
func failingFor(
	t *testing.T, d time.Duration, o controller.Options, reconcile controller.Func[types.NamespacedName], also ...source.Source[types.NamespacedName],
) []eventsv1.Event {
	t.Helper()
	api := sim.NewServer(sim.ConfigMaps, resource)
	api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	cfg := &rest.Config{Host: sim.Host, Transport: api, QPS: -1}
	m := manager.New(cfg, manager.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
	maps := cache.For[*corev1.ConfigMap](m.Cache())
	c := controller.New("website", events.Failing(reconcile, 10*time.Minute, maps, events.For(m, events.Options{})), o)
	c.Watch(source.Kind(maps, handler.Self()))
	for _, s := range also {
		c.Watch(s)
	}
	m.Add(c)
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	testkit.Equal(t, m.Run(ctx), nil)
	client, err := eventsclient.NewForConfig(cfg)
	testkit.NoError(t, err)
	list, err := client.Events("default").List(t.Context(), metav1.ListOptions{})
	testkit.NoError(t, err)
	return list.Items
}

// TestFailing_OneEvent: with the number of failures and the last error, within 11 minutes, and no
// other one in a day. A panic counts as a failure.
func TestFailing_OneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, last, began := 0, 0, time.Now()
		found := failingFor(t, 24*time.Hour, controller.Options{}, func(context.Context, types.NamespacedName) (controller.Result, error) {
			if n++; time.Since(began) < 11*time.Minute {
				last = n
			}
			if n == 3 {
				panic("oops")
			}
			return controller.Result{}, fmt.Errorf("attempt %d failed", n)
		})
		if len(found) != 1 {
			t.Fatalf("there are %d Events: %+v", len(found), found)
		}
		e := found[0]
		want := fmt.Sprintf("%d Reconciles in a row have failed, for 10m0s; the last error: attempt %d failed", last, last)
		if e.Note != want || e.Type != string(events.Warning) || e.Reason != events.ReasonFailing || e.Series != nil || e.Regarding.Name != "a" || e.Regarding.UID == "" {
			t.Errorf("the Event is %+v, want %q", e, want)
		}
		testkit.Between(t, e.EventTime.Sub(began), 10*time.Minute, 11*time.Minute)
		if n <= last+3 {
			t.Errorf("only %d Reconciles", n)
		}
	})
}

// TestFailing_NoEvent: for failures of less than the time, for a row that a success ends, for
// terminal errors, and for an object that the controller gives up.
func TestFailing_NoEvent(t *testing.T) {
	errFailed := errors.New("failed")
	for name, test := range map[string]struct {
		o         controller.Options
		reconcile func(n int, since time.Duration) (controller.Result, error)
	}{
		"short": {reconcile: func(int, time.Duration) (controller.Result, error) { return controller.Result{}, errFailed }},
		"terminal": {reconcile: func(int, time.Duration) (controller.Result, error) {
			return controller.Result{RequeueAfter: time.Second}, controller.Terminal(errFailed)
		}},
		"success": {reconcile: func(n int, _ time.Duration) (controller.Result, error) {
			if n%10 == 0 {
				return controller.Result{RequeueAfter: time.Second}, nil
			}
			return controller.Result{}, errFailed
		}},
		"given up": {o: controller.Options{MaxAttempts: 5}, reconcile: func(int, time.Duration) (controller.Result, error) { return controller.Result{}, errFailed }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, began, d := 0, time.Now(), time.Hour
				if name == "short" {
					d = 9 * time.Minute
				}
				var also []source.Source[types.NamespacedName]
				if name == "terminal" || name == "given up" {
					also = append(also, source.Ticker("events", time.Minute, func(context.Context) ([]types.NamespacedName, error) {
						return []types.NamespacedName{{Namespace: "default", Name: "a"}}, nil
					}))
				}
				found := failingFor(t, d, test.o, func(context.Context, types.NamespacedName) (controller.Result, error) {
					n++
					return test.reconcile(n, time.Since(began))
				}, also...)
				testkit.Len(t, found, 0)
				testkit.NotEqual(t, n, 0)
			})
		})
	}
}

// TestFailing_CountsDeadlines: a Reconcile that always exceeds its deadline is failing.
func TestFailing_CountsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := controller.Options{Deadline: time.Minute, SlowAfter: -1}
		found := failingFor(t, time.Hour, o, func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			<-ctx.Done()
			return controller.Result{}, ctx.Err()
		})
		if len(found) != 1 || !strings.HasSuffix(found[0].Note, "the last error: context canceled") {
			t.Errorf("the Events are %+v", found)
		}
	})
}

// TestFailing_Again: after a success, the object gets another event.
func TestFailing_Again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, succeeded := time.Now(), false
		found := failingFor(t, 2*time.Hour, controller.Options{}, func(context.Context, types.NamespacedName) (controller.Result, error) {
			if !succeeded && time.Since(began) > time.Hour {
				succeeded = true
				return controller.Result{RequeueAfter: time.Second}, nil
			}
			return controller.Result{}, errors.New("failed")
		})
		calls := 0
		for _, e := range found {
			calls++
			if e.Series != nil {
				calls += int(e.Series.Count) - 1
			}
		}
		testkit.Equal(t, calls, 2, "events", found)
	})
}

// TestFailing_BadInput: each mistake has one sentence, or leaves the reconciler as it is.
func TestFailing_BadInput(t *testing.T) {
	r := controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, nil
	})
	testkit.Equal(t, events.Failing[*corev1.ConfigMap](nil, time.Hour, nil, nil), nil, "no reconciler became")
	_, same := events.Failing[*corev1.ConfigMap](r, 0, nil, nil).(controller.Func[types.NamespacedName])
	testkit.Equal(t, same, true, "without a time the reconciler is wrapped")
	_, err := events.Failing[*corev1.ConfigMap](r, time.Hour, nil, nil).Reconcile(t.Context(), types.NamespacedName{})
	testkit.Equal(t, controller.IsTerminal(err), true, "nil arguments")
	testkit.ErrorContains(t, err, "events.Failing: the handle or the recorder is nil", "nil arguments")
}
