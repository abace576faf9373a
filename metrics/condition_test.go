// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/metrics"
)

// conditionsOf returns the conditions of a ConfigMap, which has them in its data as Type: "Status
// Reason".
func conditionsOf(m *corev1.ConfigMap) []metav1.Condition {
	var conditions []metav1.Condition
	for name, text := range m.Data {
		is, reason, _ := strings.Cut(text, " ")
		conditions = append(conditions, metav1.Condition{
			Type: name, Status: metav1.ConditionStatus(is), Reason: reason, LastTransitionTime: m.CreationTimestamp,
		})
	}
	return conditions
}

func withConditions(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.Now()}, Data: data}
}

// runCache runs a cache until stop is called.
func runCache(t *testing.T, api *sim.Server) (c *cache.Cache, run func() (stop func())) {
	t.Helper()
	cl, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	c = cache.New(cl, cache.Options{})
	return c, func() func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		return func() {
			cancel()
			testkit.Equal(t, <-ended, nil)
		}
	}
}

func TestConditions_CountsObjectsAtTheScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, r := sim.NewServer(sim.ConfigMaps), prometheus.NewPedanticRegistry()
		c, run := runCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		testkit.NoError(t, metrics.Conditions(r, h, conditionsOf))
		is := func(want string) {
			t.Helper()
			synctest.Wait()
			testkit.Equal(t, testutil.GatherAndCompare(r, strings.NewReader(want)), nil)
		}
		is("") // it does not wait for the list
		api.Put(sim.ConfigMaps, withConditions("a", map[string]string{"Ready": "False Filling"}))
		time.Sleep(10 * time.Minute)
		api.Put(sim.ConfigMaps, withConditions("b", map[string]string{"Ready": "False Filling", "Clean": "True Fine"}))
		api.Put(sim.ConfigMaps, withConditions("c", map[string]string{"Ready": "False Broken"}))
		api.Put(sim.ConfigMaps, withConditions("d", nil))
		defer run()()
		testkit.NoError(t, h.WaitForSync(t.Context()))
		const help = `# HELP setpoint_condition_oldest_seconds Time since the earliest transition to the current status of the condition.
# TYPE setpoint_condition_oldest_seconds gauge
%s# HELP setpoint_conditions Objects that have the condition.
# TYPE setpoint_conditions gauge
%s`
		is(fmt.Sprintf(help, `setpoint_condition_oldest_seconds{kind="ConfigMap",status="False",type="Ready"} 600
setpoint_condition_oldest_seconds{kind="ConfigMap",status="True",type="Clean"} 0
`, `setpoint_conditions{kind="ConfigMap",reason="Broken",status="False",type="Ready"} 1
setpoint_conditions{kind="ConfigMap",reason="Filling",status="False",type="Ready"} 2
setpoint_conditions{kind="ConfigMap",reason="Fine",status="True",type="Clean"} 1
`))
		api.Remove(sim.ConfigMaps, "default", "a")
		api.Put(sim.ConfigMaps, withConditions("b", map[string]string{"Ready": "True Full"}))
		is(fmt.Sprintf(help, `setpoint_condition_oldest_seconds{kind="ConfigMap",status="False",type="Ready"} 0
setpoint_condition_oldest_seconds{kind="ConfigMap",status="True",type="Ready"} 0
`, `setpoint_conditions{kind="ConfigMap",reason="Broken",status="False",type="Ready"} 1
setpoint_conditions{kind="ConfigMap",reason="Full",status="True",type="Ready"} 1
`))
		if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
		h.Release()
		is("")
	})
}

func TestConditions_SeriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, r := sim.NewServer(sim.ConfigMaps), prometheus.NewPedanticRegistry()
		c, run := runCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		testkit.NoError(t, metrics.Conditions(prometheus.WrapRegistererWithPrefix("my_", r), h, conditionsOf))
		const asked = 1500
		for i := range asked {
			api.Put(sim.ConfigMaps, withConditions(fmt.Sprint("m", i), map[string]string{"Ready": fmt.Sprint("False Reason", i)}))
		}
		defer run()()
		testkit.NoError(t, h.WaitForSync(t.Context()))
		all, err := r.Gather()
		testkit.NoError(t, err)
		for _, f := range all {
			sum := 0.0
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue()
			}
			if n := len(f.GetMetric()); f.GetName() == "my_setpoint_conditions" && (n != 1001 || sum != asked) {
				t.Errorf("%d series with a sum of %v, want 1001 with %d", n, sum, asked)
			}
		}
		testkit.Equal(t, value(t, r, "my_setpoint_conditions", "ConfigMap", "other", "other", "other"), asked-1000)
	})
}

func TestConditions_Mistakes(t *testing.T) {
	api, r := sim.NewServer(sim.ConfigMaps), prometheus.NewPedanticRegistry()
	c, _ := runCache(t, api)
	h := cache.For[*corev1.ConfigMap](c)
	check := func(err error, word string) {
		t.Helper()
		if (err == nil) != (word == "") || err != nil && !strings.Contains(err.Error(), word) {
			t.Errorf("%v, want %q", err, word)
		}
	}
	check(metrics.Conditions(nil, h, conditionsOf), "the Registerer, the handle or the function is nil")
	check(metrics.Conditions[*corev1.ConfigMap](r, nil, conditionsOf), "is nil")
	check(metrics.Conditions(r, h, nil), "is nil")
	check(metrics.Conditions(r, h, conditionsOf), "")
	check(metrics.Conditions(r, h, conditionsOf), "register one handle of the kind ConfigMap, or wrap the registry")
	check(metrics.Conditions(r, cache.For[*appsv1.Deployment](c), func(*appsv1.Deployment) []metav1.Condition { return nil }), "")
}
