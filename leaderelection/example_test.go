// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// lamps is work that leads, such as a *controller.Controller.
type lamps struct{}

func (lamps) Lead(take, work context.Context) error {
	fmt.Println("leads as", term.FromContext(work).Token().Holder)
	<-take.Done()
	return nil
}

// A host keeps its own elector. It wraps the client of the elector's lock
// and leads with Lead.
func ExampleObserve() {
	// The configuration of a real API server works, too.
	clients, err := coordinationclient.NewForConfig(sim.NewServer(sim.Leases).Config())
	if err != nil {
		fmt.Println(err)
		return
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kcm"}, Client: clients,
		LockConfig: resourcelock.ResourceLockConfig{Identity: "kcm-7f9c"},
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	c := lamps{}
	config := clientgo.LeaderElectionConfig{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true}
	observed, err := leaderelection.Observe(lock, lock.Client, leaderelection.ObserveOptions{
		LeaseDuration: config.LeaseDuration, RenewDeadline: config.RenewDeadline, RetryPeriod: config.RetryPeriod,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	led := make(chan error, 1)
	lock.Client, config.Lock = observed, lock
	config.Callbacks = clientgo.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			led <- observed.Lead(ctx, func(take, work context.Context) error {
				time.AfterFunc(time.Second/4, cancel) // the host stops
				return c.Lead(take, work)
			})
		},
		OnStoppedLeading: func() {},
	}
	clientgo.RunOrDie(ctx, config)
	fmt.Println("stopped:", <-led)
	// Output:
	// leads as kcm-7f9c
	// stopped: <nil>
}
