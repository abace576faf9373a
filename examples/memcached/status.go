// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	v1beta1 "github.com/setpoint-dev/setpoint/examples/memcached/api/v1beta1"
	"github.com/setpoint-dev/setpoint/status"
)

// report writes the status. Without a Deployment of its own, a Memcached has no servers.
func (r *reconciler) report(ctx context.Context, mc *v1beta1.Memcached, result children.Result, missing []string, failure error) error {
	deploy, _ := children.Object[*appsv1.Deployment](ctx, result, mc.Name)
	if deploy == nil { // failure has the reason
		deploy = &appsv1.Deployment{}
	}
	now, want := deploy.Status, int32(1)
	switch {
	case mc.Spec.Autoscaling.Enabled:
		want = now.Replicas
	case mc.Spec.Replicas != nil:
		want = *mc.Spec.Replicas
	}
	s := status.For(mc, mc.Status.Conditions)
	set := func(condition string, is bool, yes, no, message string, args ...any) {
		if is {
			s.True(condition, yes, fmt.Sprintf(message, args...))
		} else {
			s.False(condition, no, fmt.Sprintf(message, args...))
		}
	}
	ready := want > 0 && now.ReadyReplicas == want
	set(v1beta1.ConditionAvailable, now.ReadyReplicas > 0, "Available", "Unavailable", "%d of %d servers are ready", now.ReadyReplicas, want)
	set(v1beta1.ConditionReady, ready, "MemcachedReady", "MemcachedNotReady", "%d of %d servers are ready", now.ReadyReplicas, want)
	rolling := deploy.UID == "" || now.ObservedGeneration < deploy.Generation || now.UpdatedReplicas < want || now.Replicas != want
	set(v1beta1.ConditionProgressing, rolling, "Progressing", "ProgressingComplete", "%d of %d servers are up to date", now.UpdatedReplicas, want)
	switch {
	case failure != nil:
		s.True(v1beta1.ConditionDegraded, "ApplyFailed", failure.Error())
	case len(missing) > 0:
		s.True(v1beta1.ConditionDegraded, "SecretNotFound", "missing Secrets: "+strings.Join(missing, ", "))
	default:
		set(v1beta1.ConditionDegraded, now.ReadyReplicas < want, "Degraded", "NotDegraded", "%d of %d servers are ready", now.ReadyReplicas, want)
	}
	mc.Status = v1beta1.MemcachedStatus{Conditions: s.Conditions(), ReadyReplicas: now.ReadyReplicas, ObservedGeneration: mc.Generation}
	if ready {
		mc.Status.ServerList = []string{fmt.Sprintf("%s.%s:%d", mc.Name, mc.Namespace, ports(mc)[0].number)}
	}
	_, err := status.Update(ctx, client.For[*v1beta1.Memcached](r.client), s, mc)
	return client.IgnoreNotFound(err)
}
