// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMapped_AChangeReachesTheDeploymentsThatReferToIt changes one of two ConfigMaps.
func TestMapped_AChangeReachesTheDeploymentsThatReferToIt(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	mgr := operator(cluster.Config())
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()

	direct, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	configMaps, deployments := client.For[*corev1.ConfigMap](direct), client.For[*appsv1.Deployment](direct)
	create := func(deployment string, refersTo ...string) {
		t.Helper()
		if _, err := deployments.Create(t.Context(), newDeployment(deployment, refersTo...)); err != nil {
			t.Fatal(err)
		}
	}
	// sums waits until the operator has nothing left to do, and returns all checksums.
	sums := func() map[string]string {
		t.Helper()
		if err := mgr.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for d, err := range deployments.ListLive(t.Context(), client.ListOptions{Namespace: "default"}) {
			if err != nil {
				t.Fatal(err)
			}
			found[d.Name] = d.Spec.Template.Annotations[annotation]
		}
		return found
	}
	create("web", "colors")
	create("worker", "colors", "limits")
	create("other", "limits")
	create("none")
	before := sums()
	if before["web"] == "" || before["worker"] == "" || before["other"] == "" || before["none"] != "" {
		t.Fatalf("the checksums are %v", before)
	}

	_, err = configMaps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "colors"}, Data: map[string]string{"button": "green"},
	})
	if err != nil {
		t.Fatal(err)
	}
	after := sums()
	if after["web"] == before["web"] || after["worker"] == before["worker"] || after["other"] != before["other"] {
		t.Errorf("the checksums became %v, they were %v", after, before)
	}
	if err := configMaps.Delete(t.Context(), types.NamespacedName{Namespace: "default", Name: "colors"}); err != nil {
		t.Fatal(err)
	}
	if last := sums(); last["web"] != before["web"] || last["worker"] != before["worker"] {
		t.Errorf("without the ConfigMap the checksums are %v, they were %v", last, before)
	}

	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func newDeployment(name string, refersTo ...string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	container := corev1.Container{Name: "main", Image: "example.com/" + name}
	for _, ref := range refersTo {
		container.EnvFrom = append(container.EnvFrom, corev1.EnvFromSource{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: ref}},
		})
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: selected},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
			},
		},
	}
}
