// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	"github.com/setpoint-dev/setpoint/term"
)

// everywhere adds a controller over all ConfigMaps that leads on every replica.
func everywhere(m *manager.Manager, name string, reconcile controller.Func[types.NamespacedName]) *controller.Controller[types.NamespacedName] {
	c := controller.New(name, reconcile, controller.Options{})
	c.Watch(source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), handler.Self()))
	m.AddControllerEverywhere(c)
	return c
}

// TestAddControllerEverywhere_LeadsOnAStandby: a strict manager lets its writes pass, the log
// has no line about them, and the leader-only controller waits for the Lease.
func TestAddControllerEverywhere_LeadsOnAStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		hold := newManager(api, elected)
		configMaps(hold, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		})
		stopHolder, holderEnds := start(t, hold)
		testkit.Pass(time.Minute)
		var out testkit.Buffer
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			o.RequireTerm = true
			o.Logger = slog.New(slog.NewTextHandler(&out, nil))
		})
		var d diary
		everywhere(m, "node", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			_, err := client.For[*corev1.Secret](m.Client()).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
			d.note("%s: %v, term %v", key.Name, err, term.FromContext(ctx))
			return controller.Result{}, nil
		})
		configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
			d.note("a standby leads")
			return controller.Result{}, nil
		})
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		d.want(t, "a: <nil>, term <nil>")
		testkit.Equal(t, isReady(m), true)
		testkit.Equal(t, api.Stored(sim.Secrets), 1)
		testkit.NotContains(t, out.String(), "without a term", "the log has")
		stop()
		ok(t, result())
		stopHolder()
		ok(t, holderEnds())
	})
}

// TestM6_AddControllerEverywhere: it can be added and removed while the manager runs, and
// counts for Idle. Its name must be unique.
func TestM6_AddControllerEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		m := newManager(api, elected)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		var d diary
		slow := func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
			time.Sleep(10 * time.Second)
			d.note("%s", key.Name)
			return controller.Result{}, nil
		}
		c := everywhere(m, "node", slow)
		put(api, "a")
		ok(t, m.Idle(t.Context()))
		d.want(t, "a")
		ok(t, m.Remove(t.Context(), c))
		put(api, "b")
		testkit.Pass(time.Minute)
		d.want(t, "a")
		everywhere(m, "node", slow) // the name is free
		testkit.Pass(time.Minute)
		slices.Sort(d.events) // the initial list has no order
		d.want(t, "a", "a", "b")
		everywhere(m, "node", slow)
		testkit.Equal(t, fmt.Sprint(result()), `two controllers are named "node"; give each a name of its own`, "Run returned")
		stop()
	})
}

// TestM2_AControllerEverywhereStopsBeforeItsSources: as other controllers do, with the grace time.
func TestM2_AControllerEverywhereStopsBeforeItsSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		m := newManager(newAPI(), func(o *manager.Options) { o.Controllers = []string{"*", "-off"} })
		m.AddControllerEverywhere(newFake("node", &d))
		m.AddControllerEverywhere(newFake("off", &d))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		slices.Sort(d.events) // both start at once
		stop()
		ok(t, result())
		d.want(t, "lead node starts", "warm node starts", "lead node ends", "warm node ends")
	})
}
