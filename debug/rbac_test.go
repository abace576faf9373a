// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/rbac"
)

// TestRBAC_HasStableFields: scripts read them.
func TestRBAC_HasStableFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := manager.New(&rest.Config{Host: sim.Host, Transport: sim.New(t, scheme.Scheme)}, manager.Options{Name: "test"})
		cache.For[*corev1.ConfigMap](m.Cache())
		w := get(t, debug.Handler(m, debug.Options{}), "GET", "/debug/rbac")
		want := `{"name":"test","needed":[{"group":"","resource":"configmaps","verbs":["list","watch"],"why":"the informer of ConfigMap.v1"}],"used":[],"missing":[]}`
		var r rbac.Report
		testkit.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
		got, _ := json.Marshal(r)
		testkit.Equal(t, string(got), want)
	})
}

// TestRBAC_OfASilentAPIServer: the answer comes before the plugin gives up.
func TestRBAC_OfASilentAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Intercept((*sim.Request).Hang)
		m := manager.New(&rest.Config{Host: sim.Host, Transport: api}, manager.Options{Name: "test"})
		cache.For[*corev1.ConfigMap](m.Cache())
		began := time.Now()
		w := get(t, debug.Handler(m, debug.Options{}), "GET", "/debug/rbac")
		var r rbac.Report
		testkit.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
		testkit.Equal(t, time.Since(began), 2*time.Second)
		testkit.Contains(t, r.Error, "deadline")
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRBAC_OfATransportThatHangs: the answer comes although requests ignore their contexts.
func TestRBAC_OfATransportThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		m := manager.New(&rest.Config{Host: sim.Host, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			<-hangs
			return nil, errors.New("hung")
		})}, manager.Options{Name: "test"})
		cache.For[*corev1.ConfigMap](m.Cache())
		began := time.Now()
		w := get(t, debug.Handler(m, debug.Options{}), "GET", "/debug/rbac")
		var r rbac.Report
		testkit.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
		testkit.AtMost(t, time.Since(began), 3*time.Second)
		testkit.Contains(t, r.Error, "look for an exec plugin")
		close(hangs)
	})
}
