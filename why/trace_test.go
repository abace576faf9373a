// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/why"
)

// traces runs Trace until the returned function is called, which returns what was traced.
func (w *world) traces(o why.Object) (end func() ([]controller.Traced, error)) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all []controller.Traced
	done := make(chan error)
	go func() {
		done <- w.mgr.Trace(ctx, o, func(r controller.Traced) { all = append(all, r) })
	}()
	synctest.Wait()
	return func() ([]controller.Traced, error) {
		synctest.Wait()
		cancel()
		err := <-done
		return all, err
	}
}

// TestTrace: a trace has what the Reconciles of a key read and wrote, with values, except of
// Secrets, and ends without a trace.
func TestTrace(t *testing.T) {
	for _, storage := range []cache.Storage{cache.Decoded, cache.Packed} {
		t.Run(fmt.Sprint(storage), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testTrace(t, storage) })
		})
	}
}

func testTrace(t *testing.T, storage cache.Storage) {
	w := newWorld(t)
	w.manager.Cache.Storage = storage
	var secrets *cache.Handle[*corev1.Secret]
	w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		m, err := w.maps.Get(ctx, key)
		if err != nil || key.Name != "web" {
			return controller.Result{}, err
		}
		if _, err := secrets.Get(ctx, types.NamespacedName{Namespace: "default", Name: "hidden"}); err != nil {
			return controller.Result{}, err
		}
		to := client.For[*corev1.ConfigMap](w.mgr.Client())
		_, err = to.Apply(ctx, corev1ac.ConfigMap("child", "default").WithData(map[string]string{"copy": m.Data["value"]}))
		if err != nil {
			return controller.Result{}, err
		}
		_, err = client.For[*corev1.Secret](w.mgr.Client()).Apply(ctx, corev1ac.Secret("out", "default").WithStringData(map[string]string{"password": "hunter2"}))
		return controller.Result{}, err
	}
	w.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hidden"}, Data: map[string][]byte{"password": []byte("hunter2")}})
	w.start()
	secrets = cache.For[*corev1.Secret](w.mgr.Cache())
	m := site()
	w.put(m)
	end := w.traces(web)
	m.Data["value"] = "changed"
	w.put(m)
	w.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}})
	all, err := end()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d Reconciles are traced, want 1 (err %v): %v", len(all), err, all)
	}
	text, err := json.Marshal(all[0])
	testkit.NoError(t, err)
	for _, part := range []string{
		`"outcome":"success"`, `update of default/web at version`, `{"kind":"ConfigMap","object":"default/web","value":{"json":{`, `"value":"changed"`,
		`{"kind":"Secret","object":"default/hidden","value":{"hidden":"the content`, `"request":"patch configmaps default/child","status":20`, `"copy":"changed"`,
		`"request":"patch secrets default/out"`, `"effect":"stored"`,
	} {
		testkit.Contains(t, string(text), part, fmt.Sprintf("the trace lacks %s", part))
	}
	for _, secret := range []string{"hunter2", "aHVudGVyMg"} {
		testkit.NotContains(t, string(text), secret, "the trace has content of a Secret")
	}
	m.Data["value"] = "later"
	w.put(m)
	testkit.Equal(t, len(all), 1, "the trace did not end")
}

// TestTrace_Refused: a kind that no controller watches, an object without a key, and a fifth trace
// are errors.
func TestTrace_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.handler = handler.Map(func(context.Context, *corev1.ConfigMap) ([]types.NamespacedName, error) { return nil, nil })
		w.start()
		w.put(site())
		for o, want := range map[why.Object]string{
			{Kind: "Pod", Namespace: "default", Name: "web"}: `no controller of this process watches the kind "Pod"`,
			web: "maps the object to no key",
		} {
			testkit.ErrorContains(t, testkit.Err(w.traces(o)()), want, o, "the error")
		}
	})
}

// TestTrace_Limit: a controller has at most four traces, and a receiver that does not return keeps
// no Reconcile waiting.
func TestTrace_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		m := site()
		w.put(m)
		var ends []func() ([]controller.Traced, error)
		for range 3 {
			ends = append(ends, w.traces(web))
		}
		ctx, cancel := context.WithCancel(t.Context())
		blocked, done := make(chan struct{}), make(chan error, 1)
		var late []controller.Traced
		go func() {
			_, err := w.controller.Trace(ctx, web, func(r controller.Traced) {
				<-blocked
				late = append(late, r)
			})
			done <- err
		}()
		synctest.Wait()
		testkit.ErrorContains(t, testkit.Err(w.traces(web)()), "4 traces run already; end one", "the error of the fifth trace")
		before := w.calls.Load()
		for n := range 40 {
			m.Data["value"] = fmt.Sprint(n)
			w.put(m)
		}
		testkit.Equal(t, w.calls.Load()-before, 40, "Reconciles while a receiver is blocked")
		close(blocked)
		synctest.Wait()
		m.Data["value"] = "last"
		w.put(m)
		cancel()
		testkit.Equal(t, <-done, nil)
		if len(late) != 10 || late[9].Lost != 31 { // one is received, 8 wait
			t.Errorf("%d were received, and the last one has lost %d; want 10 and 31", len(late), late[len(late)-1].Lost)
		}
		for _, end := range ends {
			if all, err := end(); err != nil || len(all) != 41 {
				t.Errorf("%d were traced, want 41 (err %v)", len(all), err)
			}
		}
		testkit.Equal(t, testkit.Err(w.traces(web)()), nil, "after the end of the others")
	})
}
