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
	if err := evict("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the evicted Pod: %v", err)
	}
	if err := evict("b"); !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("an eviction beyond the budget: %v", err)
	}
	got, err := c.PolicyV1().PodDisruptionBudgets("default").Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, recorded := got.Status.DisruptedPods["a"]; got.Status.DisruptionsAllowed != 0 || !recorded {
		t.Errorf("the budget's status is %+v", got.Status)
	}
}

func TestV1_ABindingAssignsAPodOnce(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	c := kubernetes.NewForConfigOrDie(sim.New(t, scheme.Scheme, pod).Config()).CoreV1().Pods("default")
	bind := func(node string) error {
		return c.Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
	}
	if err := bind("m"); err != nil {
		t.Fatal(err)
	}
	if err := bind("n"); !apierrors.IsConflict(err) {
		t.Errorf("a second binding: %v", err)
	}
	if got, err := c.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || got.Spec.NodeName != "m" {
		t.Errorf("the Pod is on node %q, %v", got.Spec.NodeName, err)
	}
}
