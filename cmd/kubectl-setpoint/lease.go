// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/shard"
)

// ofLease returns the Pods that campaign for a Lease, or are members of a shard group: the holders'
// Pods, and all Pods of the same workloads.
func (f *finder) ofLease(ctx context.Context, name string) ([]corev1.Pod, error) {
	l, err := f.client.CoordinationV1().Leases(f.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the namespace %s has no Lease %s; see kubectl get leases -n %s", f.namespace, name, f.namespace)
	}
	if err != nil {
		return nil, f.explain(err, "get", "leases")
	}
	holders := []string{holder(l)}
	if holders[0] == shard.Holder {
		if holders, err = f.members(ctx, name); err != nil {
			return nil, err
		}
	}
	if holders = slices.DeleteFunc(holders, func(h string) bool { return h == "" }); len(holders) == 0 {
		return nil, fmt.Errorf("no process holds the Lease %s; name the replicas with --selector or --in", name)
	}
	all, err := f.client.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, f.explain(err, "list", "pods")
	}
	found := map[string]corev1.Pod{}
	for _, h := range holders {
		pod := podOf(h, all.Items)
		if pod == nil {
			f.p.diag.line("no Pod in the namespace %s belongs to %s, which holds the Lease %s", f.namespace, h, name)
			continue
		}
		if _, known := found[pod.Name]; known {
			continue
		}
		pods, err := f.siblings(ctx, pod)
		if err != nil {
			return nil, err
		}
		for _, p := range pods {
			found[p.Name] = p
		}
	}
	var pods []corev1.Pod
	for _, pod := range found {
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// members returns the holders of the Leases of a shard group's members.
func (f *finder) members(ctx context.Context, group string) ([]string, error) {
	selector := labels.SelectorFromSet(labels.Set{shard.GroupLabel: group}).String()
	leases, err := f.client.CoordinationV1().Leases(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, f.explain(err, "list", "leases")
	}
	var holders []string
	for _, l := range leases.Items {
		holders = append(holders, holder(&l))
	}
	return holders, nil
}

// podOf returns the Pod of an identity, which is by default the host name, "_" and a UUID. The host
// name is the Pod's name, cut after 63 bytes, or the node's.
func podOf(identity string, pods []corev1.Pod) *corev1.Pod {
	host, _, _ := strings.Cut(identity, "_")
	if host == "" {
		return nil
	}
	for _, is := range []func(*corev1.Pod) bool{
		func(p *corev1.Pod) bool { return p.Name == host },
		func(p *corev1.Pod) bool { return p.Spec.Hostname == host },
		func(p *corev1.Pod) bool { return len(p.Name) > 63 && strings.TrimRight(p.Name[:63], "-.") == host },
		func(p *corev1.Pod) bool { return p.Spec.HostNetwork && p.Spec.NodeName == host },
	} {
		var found []*corev1.Pod
		for i := range pods {
			if is(&pods[i]) {
				found = append(found, &pods[i])
			}
		}
		if len(found) == 1 { // of several, any may be the one
			return found[0]
		}
	}
	return nil
}

// guess returns the only Lease of the namespace that is known to be of this module. A Lease of
// leader election looks like one of client-go, unless it was just released.
func (f *finder) guess(ctx context.Context) (string, error) {
	leases, err := f.client.CoordinationV1().Leases(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", f.explain(err, "list", "leases")
	}
	var ours, others []string
	for _, l := range leases.Items {
		_, group := l.Annotations[shard.SlotsAnnotation]
		_, released := l.Annotations[leaderelection.WrittenAnnotation]
		switch {
		case l.Labels[shard.GroupLabel] != "": // a member's
		case group || released:
			ours = append(ours, l.Name)
		default:
			others = append(others, l.Name)
		}
	}
	if len(ours) == 1 {
		f.p.diag.line("asking the Pods that share the Lease %s", ours[0])
		return ours[0], nil
	}
	text := fmt.Sprintf("name the replicas in the namespace %s with --lease NAME, --selector app=x or --in deploy/NAME", f.namespace)
	if all := append(ours, others...); len(all) > 0 {
		text += "; it has the Leases " + strings.Join(all[:min(len(all), 10)], ", ")
	}
	return "", errors.New(text)
}
