// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestFairness_DefaultsAndChoices runs docs/fairness.md: a controller gets the manager's defaults,
// and its Results choose the class of the next Reconcile. RequeueAll reconciles all objects.
func TestFairness_DefaultsAndChoices(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	if _, err := admin(t, cluster).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "color"}}); err != nil {
		t.Fatal(err)
	}
	mgr := withDefaults(cluster.Config())
	c := choosing(cache.For[*corev1.ConfigMap](mgr.Cache()), cache.For[*corev1.Secret](mgr.Cache()))
	mgr.Add(c)
	stop := run(t, mgr)
	defer stop()
	for range 2 {
		if err := mgr.Idle(ctx); err != nil {
			t.Fatal(err)
		}
		k, _ := c.Queue().Lookup(types.NamespacedName{Namespace: "default", Name: "color"})
		if k.State != workqueue.Waiting || k.Class != workqueue.Background || k.Tenant != "default" || c.Snapshot().Workers != 4 {
			t.Errorf("the key is %+v, with %d workers", k, c.Snapshot().Workers)
		}
		before, err := c.WaitIdle(ctx)
		if err == nil {
			err = c.RequeueAll(ctx)
		}
		after, quiet := c.WaitIdle(ctx)
		if err != nil || quiet != nil || after.Taken <= before.Taken {
			t.Errorf("RequeueAll: %v, %v, %d Reconciles before and %d after", err, quiet, before.Taken, after.Taken)
		}
	}
}
