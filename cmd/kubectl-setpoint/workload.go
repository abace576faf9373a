// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// inWorkload returns the Pods of a workload such as deploy/NAME.
func (f *finder) inWorkload(ctx context.Context, text string) ([]corev1.Pod, error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok || name == "" {
		return nil, fmt.Errorf("--in: %q; use a form such as deploy/NAME or pod/NAME", text)
	}
	var owner metav1.Object
	var err error
	get, apps := metav1.GetOptions{}, f.client.AppsV1()
	resource := strings.TrimSuffix(strings.ToLower(kind), "s") + "s"
	switch resource {
	case "pods", "pos":
		pod, err := f.client.CoreV1().Pods(f.namespace).Get(ctx, name, get)
		if err != nil {
			return nil, f.explain(err, "get", "pods")
		}
		return []corev1.Pod{*pod}, nil
	case "deployments", "deploys":
		resource = "deployments"
		owner, err = apps.Deployments(f.namespace).Get(ctx, name, get)
	case "statefulsets", "sts":
		resource = "statefulsets"
		owner, err = apps.StatefulSets(f.namespace).Get(ctx, name, get)
	case "daemonsets", "ds":
		resource = "daemonsets"
		owner, err = apps.DaemonSets(f.namespace).Get(ctx, name, get)
	case "replicasets", "rs":
		resource = "replicasets"
		owner, err = apps.ReplicaSets(f.namespace).Get(ctx, name, get)
	default:
		return nil, fmt.Errorf("--in: the kind %q is unknown; use deploy, sts, ds, rs or pod", kind)
	}
	if err != nil {
		return nil, f.explain(err, "get", resource)
	}
	return f.ownedBy(ctx, owner.GetUID(), resource == "deployments")
}

// ownedBy returns the Pods of an owner, or of all ReplicaSets of a Deployment.
func (f *finder) ownedBy(ctx context.Context, owner types.UID, deployment bool) ([]corev1.Pod, error) {
	owners := map[types.UID]bool{owner: true}
	if deployment {
		sets, err := f.client.AppsV1().ReplicaSets(f.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, f.explain(err, "list", "replicasets")
		}
		for _, s := range sets.Items {
			owners[s.UID] = controlledBy(&s, owner)
		}
	}
	pods, err := f.client.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, f.explain(err, "list", "pods")
	}
	var found []corev1.Pod
	for _, pod := range pods.Items {
		if by := metav1.GetControllerOf(&pod); by != nil && owners[by.UID] {
			found = append(found, pod)
		}
	}
	return found, nil
}

func controlledBy(o metav1.Object, owner types.UID) bool {
	by := metav1.GetControllerOf(o)
	return by != nil && by.UID == owner
}

// siblings returns a Pod and all Pods of the same workload.
func (f *finder) siblings(ctx context.Context, pod *corev1.Pod) ([]corev1.Pod, error) {
	by := metav1.GetControllerOf(pod)
	if by == nil {
		return []corev1.Pod{*pod}, nil
	}
	if by.Kind != "ReplicaSet" {
		return f.ownedBy(ctx, by.UID, false)
	}
	set, err := f.client.AppsV1().ReplicaSets(f.namespace).Get(ctx, by.Name, metav1.GetOptions{})
	if err != nil {
		return nil, f.explain(err, "get", "replicasets")
	}
	if above := metav1.GetControllerOf(set); above != nil && above.Kind == "Deployment" {
		return f.ownedBy(ctx, above.UID, true)
	}
	return f.ownedBy(ctx, by.UID, false)
}
