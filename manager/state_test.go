// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// TestControllers_AreThoseThatMayRun: they are sorted by name, and neither disabled nor removed.
func TestControllers_AreThoseThatMayRun(t *testing.T) {
	m := newManager(newAPI(), func(o *manager.Options) { o.Controllers = []string{"*", "-off"} })
	gone := newFake("gone", nil)
	all := map[string]manager.Controller{"b": newFake("b", nil), "off": newFake("off", nil), "a": newFake("a", nil)}
	m.Add(all["b"])
	m.Add(gone)
	m.Add(all["off"])
	m.AddControllerEverywhere(all["a"])
	ok(t, m.Remove(t.Context(), gone))
	if got := m.Controllers(); len(got) != 2 || got[0] != all["a"] || got[1] != all["b"] {
		t.Errorf("got %v", got)
	}
}

// TestInformers_OfAllClusters: the state has the informers of each cluster.
func TestInformers_OfAllClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), nil)
		nothing := controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (r controller.Result, err error) { return r, nil })
		west := m.AddCluster("west", config(newAPI()))
		configMaps(m, "own", nothing)
		c := controller.New("west", nothing, controller.Options{})
		c.Watch(source.Kind(cache.For[*corev1.Secret](west.Cache()), handler.Self()))
		m.Add(c)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		kinds := ""
		for _, s := range m.Informers() {
			kinds += fmt.Sprint(s.Kind, " ", s.Phase, "; ")
		}
		testkit.Equal(t, kinds, "ConfigMap.v1 synced; Secret.v1 synced; ")
		stop()
		ok(t, result())
	})
}
