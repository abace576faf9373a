// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestC6_FailingClosesOnRecovery: Failing returns a lag while a declared informer fails. The lag
// closes when the informer recovers, without replayed events, after Recovered: a key that the lag
// wakes would be added while its Reconcile runs.
func TestC6_FailingClosesOnRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		stop := testkit.Start(t, c.Run)
		defer stop()
		synced(t, h)
		d := declared(h)
		testkit.Equal(t, d.Failing(), nil, "although nothing fails")
		api.Intercept(refuse)
		api.CutWatches()
		synctest.Wait()
		missing := d.Failing()
		if missing == nil || !missing.Failing() {
			t.Fatalf("got %v, although the informer fails", missing)
		}
		var recovered, calls, cancelled atomic.Int32
		defer d.Attach(&user{recovered: &recovered})()
		defer missing.Notify(wake(func() { calls.Add(recovered.Load()) }))()
		missing.Notify(wake(func() { cancelled.Add(1) }))()
		time.Sleep(time.Minute)
		testkit.Equal(t, calls.Load(), 0, "it was called while the informer fails")
		api.Intercept(nil)
		time.Sleep(5 * time.Second)
		testkit.Equal(t, calls.Load(), 1)
		testkit.Equal(t, cancelled.Load(), 0)
		testkit.Equal(t, d.Failing(), nil, "although it has recovered")
	})
}

// TestC6_Resolve: Resolve returns the differences between the API server and the informers of all
// scopes, for one object or, without a name, for its namespace.
func TestC6_Resolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		gone := api.Put(sim.ConfigMaps, testkit.ConfigMap("gone"))
		api.Put(sim.ConfigMaps, testkit.ConfigMap("same"))
		c, _ := newCache(t, api)
		all := cache.For[*corev1.ConfigMap](c)
		some := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"app": "a"})})
		stop := testkit.Start(t, c.Run)
		defer stop()
		synced(t, all)
		synced(t, some)
		d := declared(all, some)
		api.Lag(time.Hour)
		api.Remove(sim.ConfigMaps, "default", "gone")
		labeled := testkit.ConfigMap("new")
		labeled.Labels = map[string]string{"app": "a"}
		created := api.Put(sim.ConfigMaps, labeled)
		w := writtenOf(sim.ConfigMaps, gone)
		w.Name, w.UID, w.ResourceVersion, w.Unknown = "", "", "", "the answer was lost"

		requests := len(api.Requests())
		unseen, fate, err := d.Resolve(context.Background(), w)
		if err != nil || fate != consistency.Open || len(api.Requests()) != requests+1 {
			t.Fatalf("fate %d, %v, with %d requests", fate, err, len(api.Requests())-requests)
		}
		seen := map[string]consistency.Write{}
		for _, u := range unseen {
			seen[u.Name] = u
			missing, _ := d.Behind(u)
			testkit.NotEqual(t, missing, nil, fmt.Sprintf("%+v is shown", u))
		}
		if len(seen) != 2 || !seen["gone"].Gone || seen["new"].UID != created.GetUID() || seen["new"].ResourceVersion != created.GetResourceVersion() {
			t.Errorf("got %+v, want that gone is gone and new is new", unseen)
		}

		w.Name = "same"
		if unseen, fate, err := d.Resolve(context.Background(), w); err != nil || fate != consistency.Open || len(unseen) > 0 {
			t.Errorf("got %v, %d, %v of an object that is as it was", unseen, fate, err)
		}
		other := w
		other.Resource.Resource = "secrets"
		if _, fate, err := d.Resolve(context.Background(), other); err != nil || fate != consistency.Unkept {
			t.Errorf("got %d, %v of a kind that is not declared", fate, err)
		}
		api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		if _, _, err := d.Resolve(context.Background(), w); err == nil {
			t.Error("no error, although the API server could not be asked")
		}
	})
}

// user counts recoveries.
type user struct {
	consistency.User
	recovered *atomic.Int32
}

func (*user) Relisted() {}

func (u *user) Recovered() { u.recovered.Add(1) }
