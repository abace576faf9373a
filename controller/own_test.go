// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// backoff is the delay of a failed key in these tests: longer than the lag of the watches.
var backoff = workqueue.Options[types.NamespacedName]{Backoff: workqueue.Exponential{Base: 10 * time.Second, Max: 10 * time.Second}}

// touch returns a step that changes the object itself, takes a while, and may fail.
func touch(takes time.Duration, err error) func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
	return func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		r.touch(ctx, key)
		time.Sleep(takes)
		return controller.Result{}, err
	}
}

func (r *rig) touch(ctx context.Context, key types.NamespacedName) {
	r.t.Helper()
	m, err := r.maps.Get(ctx, key)
	if err != nil {
		r.t.Error(err)
		return
	}
	m.Data = map[string]string{"at": time.Now().String()}
	testkit.Equal(r.t, testkit.Err(r.update(ctx, m)), nil)
}

// TestC7_OwnWritesDoNotCutTheBackoff: their events may come before or after the end of the
// Reconcile.
func TestC7_OwnWritesDoNotCutTheBackoff(t *testing.T) {
	for name, takes := range map[string]time.Duration{"event while it runs": 2 * lag, "event in the backoff": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, controller.Options{}, backoff, nil, touch(takes, errFlaky), touch(takes, errFlaky))
				r.start()
				second := takes + 10*time.Second
				r.want(r.after(time.Minute), 0, second, second+takes+10*time.Second)
				testkit.Equal(t, r.control.Snapshot().OwnEvents, 2, "the snapshot counts own events")
			})
		})
	}
}

// TestC7_OthersCutTheBackoff: before or after the end, and with writes of the same object at the
// same time.
func TestC7_OthersCutTheBackoff(t *testing.T) {
	others := func(r *rig) {
		m := &corev1.ConfigMap{ObjectMeta: named("a"), Data: map[string]string{"by": "another client"}}
		r.api.Put(sim.ConfigMaps, m)
	}
	for name, test := range map[string]struct {
		takes time.Duration
		when  time.Duration
		want  time.Duration
	}{
		"while it runs":  {2 * lag, time.Millisecond, 2 * lag},
		"in the backoff": {0, time.Second, time.Second + lag},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, controller.Options{}, backoff, nil, touch(test.takes, errFlaky))
				time.AfterFunc(test.when, func() { others(r) })
				r.start()
				r.want(r.after(time.Minute), 0, test.want)
			})
		})
	}
}

// TestC7_DeleteAndRecreateIsNotItsOwn: the event of the own delete is, the event of another
// client's create is not.
func TestC7_DeleteAndRecreateIsNotItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remove := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			ok(t, r.delete(ctx, key))
			return controller.Result{}, errFlaky
		}
		r := newRig(t, controller.Options{}, backoff, nil, remove)
		time.AfterFunc(5*time.Second, func() { r.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a")}) })
		r.start()
		r.want(r.after(time.Minute), 0, 5*time.Second+lag)
	})
}

// TestC7_WhatChangedNothingIsNotItsOwn: the version in the answer is another client's, whose event
// is still to come.
func TestC7_WhatChangedNothingIsNotItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		update := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			r.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a"), Data: map[string]string{"by": "another client"}})
			m, err := client.For[*corev1.ConfigMap](r.client).GetLive(ctx, key)
			ok(t, err)
			_, err = r.update(ctx, m)
			ok(t, err)
			return controller.Result{}, errFlaky
		}
		r := newRig(t, controller.Options{}, backoff, nil, update)
		r.start()
		r.want(r.after(time.Minute), 0, lag)
	})
}

// TestC7_AfterARelistItWakes: one event may stand for several changes.
func TestC7_AfterARelistItWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relist := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			r.api.Lag(time.Hour)
			r.touch(ctx, key)
			time.AfterFunc(time.Second, func() {
				r.api.Expire()
				r.api.Lag(0)
				r.api.CutWatches()
			})
			return controller.Result{}, errFlaky
		}
		r := newRig(t, controller.Options{}, backoff, nil, relist)
		r.start()
		if at := r.after(time.Minute); len(at) != 2 || at[1] < time.Second || at[1] > 9*time.Second {
			t.Errorf("reconciled at %v, want the second after the relist", at)
		}
	})
}

// TestC7_AfterASuccessOwnWritesWake: many operators rely on it.
func TestC7_AfterASuccessOwnWritesWake(t *testing.T) {
	for name, takes := range map[string]time.Duration{"event while it runs": 2 * lag, "event after it": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, controller.Options{}, backoff, nil, touch(takes, nil))
				r.start()
				r.want(r.after(time.Minute), 0, max(lag, takes))
			})
		})
	}
}

// TestC7_TheUsersOwnToo: Own of the queue's options is still called.
func TestC7_TheUsersOwnToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		q := backoff
		q.Own = func(types.NamespacedName, uint64, workqueue.Reason) (bool, time.Duration) {
			asked++
			return true, 0
		}
		r := newRig(t, controller.Options{}, q, nil, touch(2*lag, errFlaky))
		time.AfterFunc(5*time.Second, func() { r.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a")}) })
		r.start()
		r.want(r.after(time.Minute), 0, 2*lag+10*time.Second)
		testkit.Equal(t, asked, 1, "asked about adds")
	})
}

var (
	maps     = schema.GroupResource{Resource: "configmaps"}
	conflict = apierrors.NewConflict(maps, "a", errors.New("it has changed"))
	exists   = apierrors.NewAlreadyExists(maps, "a")
	tooMany  = apierrors.NewTooManyRequests("later", 30)
)

// TestC10_EveryReconcileHasAReason: so has each retry, with its delay and its log level.
func TestC10_EveryReconcileHasAReason(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		after  time.Duration
		event  string
		silent bool
	}{
		"any error":               {errFlaky, 10 * time.Second, workqueue.EventRetry, false},
		"conflict":                {conflict, 10 * time.Second, "RetryConflict", true},
		"conflict, wrapped":       {errors.Join(conflict), 10 * time.Second, "RetryConflict", true},
		"conflict and more":       {errors.Join(conflict, errFlaky), 10 * time.Second, "RetryConflict", false},
		"already exists":          {exists, 10 * time.Second, "RetryAlreadyExists", true},
		"too many requests":       {tooMany, 30 * time.Second, workqueue.EventRetry, true},
		"RetryAfter":              {controller.RetryAfter(errFlaky, time.Second), time.Second, "RetryAfter", false},
		"RetryAfter, long":        {controller.RetryAfter(errFlaky, time.Hour), time.Hour, "RetryAfter", false},
		"RetryAfter of zero":      {controller.RetryAfter(errFlaky, 0), 10 * time.Second, workqueue.EventRetry, false},
		"RetryAfter of conflicts": {controller.RetryAfter(conflict, time.Second), time.Second, "RetryAfter", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out testkit.Buffer
				var event string
				r := newRig(t, controller.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))}, backoff, nil, func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
					return controller.Result{}, test.err
				}, func(r *rig, _ context.Context, key types.NamespacedName) (controller.Result, error) {
					look, _ := r.control.Queue().Lookup(key)
					event = look.Reasons[0].Event
					return controller.Result{}, nil
				})
				r.start()
				r.want(r.after(2*time.Hour), 0, test.after)
				testkit.Equal(t, event, test.event, "the recorded reason")
				testkit.Equal(t, strings.Contains(out.String(), "level=ERROR"), !test.silent, &out)
			})
		})
	}
}

// TestC10_HoweverItBecameDue: each way to make a key due has a reason.
func TestC10_HoweverItBecameDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		look := func(result controller.Result, err error) func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			return func(r *rig, _ context.Context, key types.NamespacedName) (controller.Result, error) {
				state, _ := r.control.Queue().Lookup(key)
				event := "none"
				if len(state.Reasons) > 0 {
					event = state.Reasons[0].Source + " " + state.Reasons[0].Event
				}
				events = append(events, event)
				return result, err
			}
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil,
			look(controller.Result{RequeueAfter: time.Second}, nil), look(controller.Result{}, errFlaky),
			look(controller.Result{}, nil), look(controller.Result{}, nil), look(controller.Result{}, nil), look(controller.Result{}, nil))
		r.start()
		key := types.NamespacedName{Namespace: "default", Name: "a"}
		for _, due := range []func(){
			func() {},
			func() { r.control.Queue().Add(key) },
			func() { r.control.TheQueue().RequeueNow(key, workqueue.Reason{}) },
			func() { r.control.Queue().AddWith(key, workqueue.AddOptions{After: time.Second}) },
		} {
			due()
			r.after(time.Minute)
		}
		want := []string{"Kind(ConfigMap.v1) create", "queue After", "queue Retry", "queue Added", "queue RequeueNow", "queue Added"}
		testkit.SlicesEqual(t, events, want, "the reasons")
	})
}
