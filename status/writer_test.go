// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/status"
)

// launch starts an operator whose Gauge is Ready once there are three ConfigMaps, which come 200 ms
// apart. It returns the number of states that were stored.
func launch(t *testing.T, window time.Duration) (writes int) {
	states := map[string]bool{}
	scheme := newScheme()
	testkit.NoError(t, corev1.AddToScheme(scheme))
	api := sim.NewServer(served, sim.ConfigMaps)
	put(t, api, 1, 0)
	mgr := manager.New(api.Config(), manager.Options{Name: "gauges", Scheme: scheme})
	maps, all := cache.For[*corev1.ConfigMap](mgr.Cache()), cache.For[*Gauge](mgr.Cache())
	writer := status.NewWriter(client.For[*Gauge](mgr.Client()), status.Options{Window: window})
	c := controller.New("gauges", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		g, err := all.Get(ctx, key)
		if err != nil {
			return controller.Result{}, err
		}
		states[g.ResourceVersion] = true
		ready, err := maps.List(ctx, cache.ListOptions{})
		if err != nil {
			return controller.Result{}, err
		}
		s := setFor(g)
		if progress := fmt.Sprintf("%d of 3", len(ready)); len(ready) == 3 {
			s.True("Ready", "All", progress)
		} else {
			s.False("Ready", "Some", progress)
		}
		wait, err := writer.Apply(ctx, s, desired(g, s.ApplyConfigurations()))
		return controller.Result{RequeueAfter: wait}, err
	}), controller.Options{})
	c.Watch(source.Kind(all, handler.Self()))
	c.Watch(source.Kind(maps, handler.Map(func(context.Context, *corev1.ConfigMap) ([]types.NamespacedName, error) {
		return []types.NamespacedName{oil}, nil
	})))
	mgr.Add(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Run(ctx) }()
	for i := range 3 {
		time.Sleep(200 * time.Millisecond)
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: oil.Namespace, Name: strconv.Itoa(i)}})
	}
	testkit.Equal(t, testkit.Err(status.Await(t.Context(), all, oil, status.True("Ready"))), nil)
	time.Sleep(time.Hour)
	cancel()
	testkit.Equal(t, <-done, nil)
	return len(states) - 1
}

// TestWriter_OneWriteOfALaunch: the changes of several Reconciles are one write.
func TestWriter_OneWriteOfALaunch(t *testing.T) {
	for window, want := range map[time.Duration]int{0: 4, time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			testkit.Equal(t, launch(t, window), want, fmt.Sprintf("with a window of %s, the status was written", window))
		})
	}
}

// writing is a Writer and what the API server got.
type writing struct {
	*status.Writer[*Gauge]
	api  *sim.Server
	h    *client.Handle[*Gauge]
	sent int
	fail bool
}

func newWriting(t *testing.T, window time.Duration) *writing {
	w := &writing{api: sim.NewServer(served)}
	w.api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Subresource != "status" {
			return nil, nil
		}
		w.sent++
		if w.fail {
			return r.Fail(http.StatusInternalServerError, "broken")
		}
		return nil, nil
	})
	c, err := client.New(w.api.Config(), client.Options{Scheme: newScheme(), FieldOwner: "test"})
	testkit.NoError(t, err)
	t.Cleanup(c.Close)
	w.h = client.For[*Gauge](c)
	w.Writer = status.NewWriter(w.h, status.Options{Window: window})
	return w
}

// TestWriter_WhatIsDelayed: only a changed condition of an object that lives is delayed, from the
// first change on, until it was written.
func TestWriter_WhatIsDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriting(t, time.Second)
		apply := func(name, message string) (time.Duration, error) {
			g, err := w.h.GetLive(t.Context(), types.NamespacedName{Namespace: oil.Namespace, Name: name})
			testkit.NoError(t, err)
			s := setFor(g)
			s.True("Ready", "Good", message)
			return w.Apply(t.Context(), s, desired(g, s.ApplyConfigurations()))
		}
		expect := func(what, name, message string, wait time.Duration, sent int) {
			t.Helper()
			got, err := apply(name, message)
			testkit.Equal(t, got, wait, what)
			testkit.Equal(t, w.sent, sent, what)
			testkit.Equal(t, err != nil, w.fail, what, err)
		}
		g := gauge(1)
		w.api.Put(served, g)
		expect("the first change", g.Name, "a", time.Second, 0)
		time.Sleep(300 * time.Millisecond)
		expect("a second one", g.Name, "b", 700*time.Millisecond, 0)
		time.Sleep(700 * time.Millisecond)
		w.fail = true
		expect("when due, but refused", g.Name, "c", 0, 1)
		w.fail = false
		expect("again", g.Name, "c", 0, 2)
		expect("no change", g.Name, "c", 0, 3)
		expect("the next change", g.Name, "d", time.Second, 3)
		gone := g.DeepCopyObject().(*Gauge)
		gone.UID, gone.DeletionTimestamp, gone.Finalizers = "other", new(metav1.Now()), []string{"a/b"}
		gone.Name = "deleted"
		w.api.Put(served, gone)
		expect("of an object that is being deleted", gone.Name, "d", 0, 4)

		s := setFor(g)
		s.True("", "Good", "")
		if wait, err := w.Update(t.Context(), s, g); wait != 0 || err == nil || !strings.Contains(err.Error(), "a condition has no type") {
			t.Errorf("a mistake: wait %s, %v", wait, err)
		}
		if wait, err := w.Update(t.Context(), s, nil); wait != 0 || err == nil {
			t.Errorf("nil: wait %s, %v", wait, err)
		}
	})
}
