// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestC6_NoAnswerWithinTheBound: the wait for a request in flight has the same bound as other
// waits. Stale names it.
func TestC6_NoAnswerWithinTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left sync.WaitGroup
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, leaveBehind(&left, 10*time.Minute))
		r.start()
		r.want(r.after(15*time.Minute), 0, 30*time.Second+time.Millisecond)
		left.Wait()
		testkit.ErrorContains(t, r.stale[len(r.stale)-1], "there is no answer yet")
		if len(r.awaited) != 1 || !r.awaited[0].Expired || r.awaited[0].Doubts == nil {
			t.Errorf("the hook was told %+v", r.awaited)
		}
	})
}

// TestC6_LooksAgainMoreAndMoreRarely: checks come after 1, 2, 4 … seconds, and none after the
// bound. They find changes without an event. A requeue does not end the wait.
func TestC6_LooksAgainMoreAndMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var parked []time.Duration
		began := time.Now()
		q := workqueue.Options[types.NamespacedName]{Hook: hook.On(func(e *hook.QueueSettled) {
			mu.Lock()
			defer mu.Unlock()
			if e.Outcome == hook.QueuePark {
				parked = append(parked, time.Since(began).Truncate(time.Second))
			}
		})}
		create := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			r.api.Lag(time.Hour)
			return createSecret(r, ctx, key)
		}
		r := newRig(t, controller.Options{}, q, nil, create)
		r.start()
		time.AfterFunc(20*time.Second, func() { r.control.Requeue(types.NamespacedName{Namespace: "default", Name: "a"}) })
		r.want(r.after(time.Minute), 0, 30*time.Second+time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		testkit.SlicesEqual(t, parked, []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 20 * time.Second}, "parked at")
	})
}

// TestC6_WhatFailedIsNotSwept: a snapshot keeps showing a failure when nothing is left to wait for.
func TestC6_WhatFailedIsNotSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil)
		r.control = controller.New("test", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			if key.Name == "a" {
				return controller.Result{}, controller.Terminal(errFlaky)
			}
			_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named(key.Name)})
			return controller.Result{}, err
		}), controller.Options{Logger: silent})
		r.control.Reads(r.secrets)
		r.start()
		r.control.Queue().Add(types.NamespacedName{Namespace: "default", Name: "a"})
		for i := range 2000 {
			r.control.Queue().Add(types.NamespacedName{Namespace: "default", Name: fmt.Sprint("k", i)})
			time.Sleep(10 * time.Millisecond)
		}
		testkit.AtMost(t, r.control.Remembered(), 1000)
		if s := r.control.Snapshot(); len(s.Keys) != 1 || s.Keys[0].LastError == nil {
			t.Errorf("the snapshot has %+v, want one failure", s.Keys)
		}
	})
}

// TestC6_AControllerThatEndsIsForgotten: also by an informer that a parked key of it waits for.
func TestC6_AControllerThatEndsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, all := cluster(t, sim.Secrets)
		cfg := api.Config()
		cfg.Transport = oblivious{api}
		cl, err := client.New(cfg, client.Options{})
		ok(t, err)
		secrets := cache.For[*corev1.Secret](all)
		synctest.Wait()
		api.Lag(time.Hour)
		run := func() weak.Pointer[controller.Controller[types.NamespacedName]] {
			c := controller.New("test", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				_, err := client.For[*corev1.Secret](cl).Create(ctx, &corev1.Secret{ObjectMeta: named(key.Name)})
				return controller.Result{RequeueAfter: time.Millisecond}, err
			}), controller.Options{Logger: silent})
			c.Reads(secrets)
			c.Queue().Add(types.NamespacedName{Namespace: "default", Name: "a"})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			ok(t, c.Run(ctx))
			testkit.Equal(t, c.Remembered(), 1, "nothing was parked")
			return weak.Make(c)
		}
		ended := run()
		for range 10 {
			runtime.GC()
		}
		testkit.Equal(t, ended.Value(), nil, "the controller is kept in memory")
	})
}

// oblivious removes the ledger from requests and remembers them.
type oblivious struct{ *sim.Server }

func (o oblivious) RoundTrip(r *http.Request) (*http.Response, error) {
	return o.Server.RoundTrip(r.WithContext(context.Background()))
}
