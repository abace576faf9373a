// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	theirs "sigs.k8s.io/controller-runtime"
	theirmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestMetrics: the registry of controller-runtime has the metrics of the controllers of both levels
// by the same names, also when the process has had another manager before.
func TestMetrics(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			server := sim.NewServer(sim.ConfigMaps, sim.Leases, sim.Secrets)
			server.Put(sim.ConfigMaps, configMap("a"))
			o := elected()
			o.LeaderElectionID = "metrics" // another test has counts of their elector
			mgr := managerOn(t, server.Config(), o, ctrl.Settings{})
			r := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil })
			testkit.NoError(t, theirs.NewControllerManagedBy(mgr).Named("metrics-a").For(&corev1.ConfigMap{}).Complete(r))
			testkit.NoError(t, ctrl.NewControllerManagedBy(mgr).Named("metrics-b").For(&corev1.ConfigMap{}).Complete(r))
			defer ended(t, start(t, mgr))
			time.Sleep(time.Minute)
			families, err := theirmetrics.Registry.Gather()
			testkit.Equal(t, err, nil)
			found := map[string]bool{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						found[f.GetName()+" "+l.GetValue()] = true
					}
				}
			}
			for _, want := range []string{
				"controller_runtime_reconcile_total metrics-a", "controller_runtime_reconcile_total metrics-b",
				"controller_runtime_active_workers metrics-b", "workqueue_depth metrics-a", "workqueue_depth metrics-b",
				"workqueue_work_duration_seconds metrics-b", "setpoint_informers synced", "leader_election_master_status metrics",
			} {
				testkit.Equal(t, found[want], true, fmt.Sprintf("there is no %s", want))
			}
		})
	}
}
