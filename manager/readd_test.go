// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"cmp"
	"context"
	"net/http"
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
	"github.com/setpoint-dev/setpoint/source"
)

// TestC6_RemovedAndAddedAgain: a controller that replaces a removed one sees the writes of its
// predecessor, although the watches lag.
func TestC6_RemovedAndAddedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		api.Serve(sim.Secrets)
		put(api, "a")
		m := newManager(api, nil)
		maps, secrets := cache.For[*corev1.ConfigMap](m.Cache()), cache.For[*corev1.Secret](m.Cache())
		write := client.For[*corev1.Secret](m.Client())
		began := make(chan struct{}, 100)
		add := func() *controller.Controller[types.NamespacedName] {
			c := controller.New("website", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				began <- struct{}{}
				for _, err := range secrets.All(ctx, cache.ListOptions{}) {
					return controller.Result{}, err
				}
				_, err := write.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, GenerateName: "s-"}})
				return controller.Result{}, err
			}), controller.Options{Logger: silent})
			c.Watch(source.Kind(maps, handler.Self()))
			c.Reads(secrets)
			m.Add(c)
			return c
		}
		c := add()
		api.Lag(500 * time.Millisecond)
		stop, result := start(t, m)
		<-began
		for range 5 { // each removes the previous one, some before its first Reconcile
			synctest.Wait()
			ok(t, m.Remove(t.Context(), c))
			c = add()
		}
		testkit.Pass(time.Minute)
		testkit.Equal(t, api.Stored(sim.Secrets), 1)
		testkit.NotEqual(t, len(began), 0, "the last controller has reconciled nothing")
		stop()
		ok(t, result())
	})
}

// TestC6_RemoveDoesNotWaitForWhatNeverShows: nor longer than ReadYourWrites, or its context.
func TestC6_RemoveDoesNotWaitForWhatNeverShows(t *testing.T) {
	const shown = 500 * time.Millisecond
	for name, test := range map[string]struct {
		lag    time.Duration
		before func(api *sim.Server)
		after  func(api *sim.Server, stop func())
		within time.Duration // of Remove's context; 0 is an hour
		took   time.Duration
		err    string
	}{
		"it lags":    {lag: shown, took: shown},
		"it shows":   {lag: shown, after: func(*sim.Server, func()) { testkit.Pass(time.Minute) }},
		"too long":   {lag: time.Hour, took: 10 * time.Second, err: "after 10s, its caches do not show what it wrote last: "},
		"ctx ends":   {lag: time.Hour, within: time.Second, took: time.Second, err: "its caches do not show yet what it wrote last: "},
		"not synced": {before: func(api *sim.Server) { api.Intercept(noSecrets) }},
		"not served any more": {lag: time.Hour, after: func(api *sim.Server, _ func()) {
			api.Withdraw(sim.Secrets)
			api.CutWatches()
			testkit.Pass(time.Minute)
		}},
		"Run ends": {lag: time.Hour, took: time.Second, after: func(_ *sim.Server, stop func()) {
			time.AfterFunc(time.Second, stop)
		}},
		"Run has ended": {lag: time.Hour, after: func(_ *sim.Server, stop func()) {
			stop()
			testkit.Pass(time.Minute)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				put(api, "a")
				if test.before != nil {
					test.before(api)
				}
				m := newManager(api, nil)
				secrets, write := cache.For[*corev1.Secret](m.Cache()), client.For[*corev1.Secret](m.Client())
				wrote := make(chan error, 1)
				c := controller.New("website", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
					_, err := write.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
					wrote <- err
					return controller.Result{}, nil
				}), controller.Options{Logger: silent, ReadYourWrites: 10 * time.Second})
				c.Watch(source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), handler.Self()))
				c.Reads(secrets)
				c.Optional(secrets)
				m.Add(c)
				api.Lag(test.lag)
				stop, result := start(t, m)
				ok(t, <-wrote)
				synctest.Wait()
				if test.after != nil {
					test.after(api, stop)
				}
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(test.within, time.Hour))
				defer cancel()
				began := time.Now()
				err := m.Remove(ctx, c)
				testkit.Equal(t, time.Since(began), test.took, "Remove took")
				if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
					t.Errorf("Remove returned %v, want %q", err, test.err)
				}
				api.Intercept(nil)
				stop()
				ok(t, result())
			})
		})
	}
}

// noSecrets refuses lists and watches of Secrets.
func noSecrets(r *sim.Request) (*http.Response, error) {
	if r.Resource.Resource == "secrets" && (r.Verb == "list" || r.Verb == "watch") {
		return r.Fail(http.StatusForbidden, "no secrets today")
	}
	return nil, nil
}
