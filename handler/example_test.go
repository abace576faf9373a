// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package handler_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
)

// Map follows references: here a label of a Pod names the key to reconcile.
func ExampleMap() {
	byTeam := handler.Map(func(_ context.Context, p *corev1.Pod) ([]types.NamespacedName, error) {
		return []types.NamespacedName{{Namespace: p.Namespace, Name: p.Labels["team"]}}, nil
	})

	before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "front", Labels: map[string]string{"team": "blue"},
	}}
	after := before.DeepCopy()
	after.Labels["team"] = "green"

	event := handler.Event{Op: handler.Update, Old: before, New: after}
	keys, err := byTeam.Keys(context.Background(), event)
	fmt.Println(keys, err)
	// Output: [shop/blue shop/green] <nil>
}

// This predicate keeps updates of the spec and of annotations, and drops updates of the status.
func ExampleOr() {
	relevant := handler.Or(handler.GenerationChanged, handler.AnnotationsChanged)
	fmt.Println(relevant)

	before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "front", Generation: 1}}
	ready := before.DeepCopy()
	ready.Status.Phase = corev1.PodRunning
	fmt.Println("status:", relevant.Keep(handler.Event{Op: handler.Update, Old: before, New: ready}))

	annotated := before.DeepCopy()
	annotated.Annotations = map[string]string{"example.com/restart": "now"}
	fmt.Println("annotation:", relevant.Keep(handler.Event{Op: handler.Update, Old: before, New: annotated}))
	// Output:
	// (generation changed or annotations changed)
	// status: false
	// annotation: true
}
