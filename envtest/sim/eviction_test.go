// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestV1_AnEvictionTakesADisruption evicts two Pods of a budget that allows one disruption.
func TestV1_AnEvictionTakesADisruption(t *testing.T) {
	labels := map[string]string{"app": "a"}
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			}},
		}
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1},
	}
	c := kubernetes.NewForConfigOrDie(sim.New(t, scheme.Scheme, pod("a"), pod("b"), budget).Config())
	evict := func(name string) error {
		return c.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	testkit.NoError(t, evict("a"))
	_, err := c.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
	testkit.ErrorSatisfies(t, err, apierrors.IsNotFound, "the evicted Pod")
	err = evict("b")
	testkit.ErrorSatisfies(t, err, apierrors.IsTooManyRequests, "an eviction beyond the budget")
	testkit.Equal(t, apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause), true, err)
	got := testkit.Must(c.PolicyV1().PodDisruptionBudgets("default").Get(t.Context(), "one", metav1.GetOptions{}))
	_, recorded := got.Status.DisruptedPods["a"]
	testkit.Equal(t, got.Status.DisruptionsAllowed, 0)
	testkit.Equal(t, recorded, true, "the Pod is recorded")
}

func TestV1_ABindingAssignsAPodOnce(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	c := kubernetes.NewForConfigOrDie(sim.New(t, scheme.Scheme, pod).Config()).CoreV1().Pods("default")
	bind := func(node string) error {
		return c.Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
	}
	testkit.NoError(t, bind("m"))
	testkit.ErrorSatisfies(t, bind("n"), apierrors.IsConflict, "a second binding")
	testkit.Equal(t, testkit.Must(c.Get(t.Context(), "a", metav1.GetOptions{})).Spec.NodeName, "m")
}
