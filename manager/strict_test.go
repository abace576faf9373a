// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// TestLog_AStrictRefusalIsLoggedOnce: by the Reconcile that gets the error.
func TestLog_AStrictRefusalIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		var out testkit.Buffer
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			o.Logger, o.RequireTerm = slog.New(slog.NewTextHandler(&out, nil)), true
		})
		configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
			_, err := client.For[*corev1.ConfigMap](m.Client()).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}})
			return controller.Result{}, controller.Terminal(err)
		})
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		stop()
		ok(t, result())
		var found []string
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "configmaps") {
				found = append(found, line)
			}
		}
		const want = "the request to create configmaps in default is refused by the fence: its context has no term of leadership"
		if len(found) != 1 || !strings.Contains(found[0], want) {
			t.Errorf("the log has\n%s", strings.Join(found, ""))
		}
	})
}
