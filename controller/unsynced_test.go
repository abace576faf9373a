// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"net/http"
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
)

func TestUnsyncedNamesWhatIsWatchedAndRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, all := cluster(t, sim.ConfigMaps, sim.Secrets)
		lists := make(chan struct{})
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			switch r.Resource.Resource {
			case sim.Secrets.Name:
				return r.Fail(http.StatusForbidden, "no right")
			case sim.ConfigMaps.Name:
				<-lists
			}
			return nil, nil
		})
		c := controller.New("test", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		}), controller.Options{})
		c.Watch(source.Kind(cache.For[*corev1.ConfigMap](all), handler.Self()))
		c.Reads(cache.For[*corev1.Secret](all))
		want := func(want ...string) {
			t.Helper()
			testkit.SlicesEqual(t, c.Report().Unsynced, want)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Warm(ctx) }()
		time.Sleep(time.Second)
		want("Kind(ConfigMap.v1): syncing", "Secret.v1: failing: no right")
		close(lists)
		api.Intercept(nil)
		time.Sleep(time.Hour)
		want()
		stop()
		ok(t, <-ended)
	})
}
