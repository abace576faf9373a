// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/examples/website/api/v1alpha1"
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
			got := status(site(new(int32(2)), "x"), c.deploy, c.failure)
			if len(got.Conditions) != 1 {
				t.Fatalf("conditions are %v", got.Conditions)
			}
			cond := got.Conditions[0]
			if cond.Type != v1alpha1.ConditionReady || cond.Status != c.ready || cond.Reason != c.reason {
				t.Errorf("the condition is %s=%s, %s, want %s, %s", cond.Type, cond.Status, cond.Reason, c.ready, c.reason)
			}
			if c.failure != nil && cond.Message != c.failure.Error() {
				t.Errorf("the message is %q, want the error", cond.Message)
			}
			if got.ObservedGeneration != 4 || cond.ObservedGeneration != 4 {
				t.Errorf("observed generations %d and %d, want 4", got.ObservedGeneration, cond.ObservedGeneration)
			}
			if c.deploy != nil && got.ReadyReplicas != c.deploy.Status.ReadyReplicas {
				t.Errorf("%d ready replicas, want %d", got.ReadyReplicas, c.deploy.Status.ReadyReplicas)
			}
		})
	}
}

// Unchanged conditions keep their time, so that an unchanged status equals the last one and is not
// written again.
func TestStatusKeepsTheTimeOfAnUnchangedCondition(t *testing.T) {
	s := site(new(int32(2)), "x")
	s.Status = status(s, rollout(2, 2, 2, 1), nil)
	before := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s.Status.Conditions[0].LastTransitionTime = before

	if got := status(s, rollout(2, 2, 2, 0), nil).Conditions[0].LastTransitionTime; !got.Equal(&before) {
		t.Errorf("still False, but the time moved to %s", got)
	}
	if got := status(s, rollout(2, 2, 2, 2), nil).Conditions[0].LastTransitionTime; got.Equal(&before) {
		t.Error("now True, but the time is the old one")
	}
}

// A failure does not affect the running servers: their number stays.
func TestStatusOfAFailureKeepsTheServers(t *testing.T) {
	s := site(new(int32(2)), "x")
	s.Status.ReadyReplicas = 2
	if got := status(s, nil, errors.New("no")).ReadyReplicas; got != 2 {
		t.Errorf("%d ready replicas, want 2", got)
	}
}

// The applied status equals the computed one.
func TestStatusApply(t *testing.T) {
	want := status(site(new(int32(2)), "x"), rollout(2, 2, 2, 1), nil)
	got := statusApply(want)
	if *got.ObservedGeneration != want.ObservedGeneration || *got.ReadyReplicas != want.ReadyReplicas || len(got.Conditions) != 1 {
		t.Fatalf("applied %+v, want %+v", got, want)
	}
	g, w := got.Conditions[0], want.Conditions[0]
	applied := metav1.Condition{
		Type: *g.Type, Status: *g.Status, Reason: *g.Reason, Message: *g.Message,
		ObservedGeneration: *g.ObservedGeneration, LastTransitionTime: *g.LastTransitionTime,
	}
	if applied != w {
		t.Errorf("applied the condition %+v, want %+v", applied, w)
	}
}
