// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// elect runs the host's elector until ctx is done or the Lease is lost. Observe wraps the
// client of its lock: the requests of a lost term are refused, and the Lease is released after the
// work has ended.
func elect(ctx context.Context, clientset kubernetes.Interface, namespace string, lead term.Lead) error {
	identity, err := os.Hostname()
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "embedded"}, Client: clientset.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity + "-" + strconv.Itoa(os.Getpid())},
	}
	o := leaderelection.ObserveOptions{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
	observed, err := leaderelection.Observe(lock, lock.Client, o)
	if err != nil {
		return err
	}
	lock.Client = observed
	var leading atomic.Bool
	led := make(chan error, 1)
	elector, err := clientgo.NewLeaderElector(clientgo.LeaderElectionConfig{
		Lock: lock, LeaseDuration: o.LeaseDuration, RenewDeadline: o.RenewDeadline, RetryPeriod: o.RetryPeriod, ReleaseOnCancel: true,
		Callbacks: clientgo.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) {
				leading.Store(true)
				led <- observed.Lead(term, lead)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	if !leading.Load() {
		return nil
	}
	return <-led
}
