// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestDefaultsReachEveryController: controllers that are added before and during Run get the
// manager's defaults, and keep what they set themselves.
func TestDefaultsReachEveryController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		m := newManager(api, func(o *manager.Options) {
			o.ControllerDefaults = controller.Options{
				NamespaceTenants: true, MaxAttempts: 7, Deadline: time.Minute, Classes: []workqueue.ClassWeight{{Class: 5, Weight: 1}},
			}
		})
		var mu sync.Mutex
		seen := map[string]controller.Info{}
		deadlines := map[string]time.Duration{}
		notes := func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			info, _ := controller.InfoFromContext(ctx)
			seen[info.Controller] = info
			at, _ := ctx.Deadline()
			deadlines[info.Controller] = time.Until(at)
			return controller.Result{}, nil
		}
		configMaps(m, "early", notes)
		own := controller.New("own", controller.Func[types.NamespacedName](notes), controller.Options{Deadline: time.Hour})
		// The defaults are not known yet.
		own.Queue().Add(types.NamespacedName{Namespace: "default", Name: "a"})
		m.Add(own)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		configMaps(m, "late", notes)
		testkit.Pass(time.Minute)
		stop()
		ok(t, result())
		for name, deadline := range map[string]time.Duration{"early": time.Minute, "late": time.Minute, "own": time.Hour} {
			if i := seen[name]; i.Class != 5 || i.Tenant != "default" || deadlines[name] != deadline {
				t.Errorf("%s ran as %+v with a deadline of %s", name, i, deadlines[name])
			}
		}
	})
}

// TestDefaultsThatCannotBeApplied: Run returns one error that names the controller or the field.
func TestDefaultsThatCannotBeApplied(t *testing.T) {
	nothing := controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, nil
	})
	for want, o := range map[string]controller.Options{
		"manager.Options.ControllerDefaults: Grace, Logger and Hook must be zero": {Logger: slog.Default()},
		"manager.Options.ControllerDefaults: controller.Options.Workers: -1":      {Workers: -1},
		"MaxWait is 1s, must be zero or at least MinInterval (1m0s)":              {MinInterval: time.Minute, MaxWait: time.Second},
	} {
		m := newManager(newAPI(), func(m *manager.Options) { m.ControllerDefaults = o })
		m.Add(controller.New("any", nothing, controller.Options{}))
		err := m.Run(t.Context())
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("got %v, want %q once", err, want)
		}
	}
}
