// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
)

// rollout is a Deployment of generation 2 with the given status.
func rollout(observed int64, all, updated, ready int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: observed, Replicas: all, UpdatedReplicas: updated, ReadyReplicas: ready},
	}
}

func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		deploy  *appsv1.Deployment
		failure error
		ready   metav1.ConditionStatus
		reason  string
	}{
		"all servers ready":       {rollout(2, 2, 2, 2), nil, metav1.ConditionTrue, reasonReady},
		"one server not ready":    {rollout(2, 2, 2, 1), nil, metav1.ConditionFalse, reasonRollingOut},
		"an old server is left":   {rollout(2, 3, 2, 2), nil, metav1.ConditionFalse, reasonRollingOut},
		"servers have old page":   {rollout(2, 2, 1, 2), nil, metav1.ConditionFalse, reasonRollingOut},
		"status of an older spec": {rollout(1, 2, 2, 2), nil, metav1.ConditionFalse, reasonRollingOut},
		"not applied":             {nil, errors.New("the API server said no"), metav1.ConditionFalse, reasonFailed},
	} {
		t.Run(name, func(t *testing.T) {
			got := conditions(site(new(int32(2)), "x"), c.deploy, c.failure)
			if len(got.Conditions()) != 1 || got.Err() != nil {
				t.Fatalf("conditions are %v, %v", got.Conditions(), got.Err())
			}
			cond := got.Conditions()[0]
			if cond.Type != v1.ConditionReady || cond.Status != c.ready || cond.Reason != c.reason {
				t.Errorf("the condition is %s=%s, %s, want %s, %s", cond.Type, cond.Status, cond.Reason, c.ready, c.reason)
			}
			if c.failure != nil && cond.Message != c.failure.Error() {
				t.Errorf("the message is %q, want the error", cond.Message)
			}
			if cond.ObservedGeneration != 4 {
				t.Errorf("observed generation %d, want 4", cond.ObservedGeneration)
			}
		})
	}
}
