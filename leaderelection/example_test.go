// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"fmt"
	"time"

	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// lamps is work that leads, such as a *controller.Controller.
type lamps struct{}

func (lamps) Lead(take, work context.Context) error {
	fmt.Println("leads as", term.Of(work).Token().Holder)
	<-take.Done()
	return nil
}

// theirLock is the lock of a host, here in memory. resourcelock.New makes a real one.
type theirLock struct {
	resourcelock.Interface
	record resourcelock.LeaderElectionRecord
}

func (l *theirLock) Identity() string   { return "kcm-7f9c" }
func (l *theirLock) Describe() string   { return "kube-system/kcm" }
func (l *theirLock) RecordEvent(string) {}

func (l *theirLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &l.record, fmt.Append(nil, l.record), nil
}

func (l *theirLock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.record = r
	return nil
}

// A host keeps its own elector. It wraps the elector's lock and leads with Lead.
func ExampleObserve() {
	var lock resourcelock.Interface = &theirLock{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second/4)
	defer cancel()

	c := lamps{}
	config := clientgo.LeaderElectionConfig{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true}
	observed, err := leaderelection.Observe(lock, leaderelection.ObserveOptions{
		LeaseDuration: config.LeaseDuration, RenewDeadline: config.RenewDeadline, RetryPeriod: config.RetryPeriod,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	led := make(chan error, 1)
	config.Lock = observed
	config.Callbacks = clientgo.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) { led <- observed.Lead(ctx, c.Lead) },
		OnStoppedLeading: func() {},
	}
	clientgo.RunOrDie(ctx, config)
	fmt.Println("stopped:", <-led)
	// Output:
	// leads as kcm-7f9c
	// stopped: <nil>
}
