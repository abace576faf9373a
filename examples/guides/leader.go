// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/term"
)

// twoLeases makes a program whose controllers lead under two Leases, perhaps on two replicas.
func twoLeases(cfg *rest.Config, sites, billing manager.Controller, announce func(context.Context) error) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{
		Name:           "website-operator",
		LeaderElection: &leaderelection.Options{Lease: "website-operator"},
	})
	mgr.Add(sites)                          // reconciles on the leader
	mgr.AddLeaderOnly("announce", announce) // runs once in each term

	second := mgr.AddLease(leaderelection.Options{Lease: "website-operator-billing"})
	second.Add(billing)
	return mgr
}

// ownElector drives a controller's terms by client-go's elector.
func ownElector(ctx context.Context, lock *resourcelock.LeaseLock, config clientgo.LeaderElectionConfig, c manager.Controller) error {
	observed, err := leaderelection.Observe(lock, lock.Client, leaderelection.ObserveOptions{
		LeaseDuration: config.LeaseDuration, RenewDeadline: config.RenewDeadline, RetryPeriod: config.RetryPeriod,
	})
	if err != nil {
		return err
	}
	led := make(chan error, 1)
	lock.Client, config.Lock = observed, lock
	config.Callbacks = clientgo.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) { led <- observed.Lead(ctx, c.Lead) },
		OnStoppedLeading: func() {},
	}
	clientgo.RunOrDie(ctx, config)
	return <-led
}

// namingTheWriter writes the holder of the Lease into an annotation, for a policy.
func namingTheWriter(ctx context.Context, c *client.Client, key types.NamespacedName) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{"setpoint.dev/holder": term.FromContext(ctx).Token().Holder}},
		"data":     map[string]string{"color": "teal"},
	})
	if err != nil {
		return err
	}
	_, err = client.For[*corev1.ConfigMap](c).Patch(ctx, key, types.MergePatchType, patch)
	return err
}
