// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	theirelection "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestClientGo_ReleasesTheLeaseOfAnother: with LeaderElectionReleaseOnCancel, a late elector of
// client-go reads the Lease, does not look who holds it, and releases it. So the mixed fleet does
// not set this option. If the test fails, client-go was mended.
func TestClientGo_ReleasesTheLeaseOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.Leases)
		cfg := server.Config()
		const renew = 10 * time.Second // the defaults of controller-runtime
		lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, "default", leaseName, resourcelock.ResourceLockConfig{Identity: "late"}, cfg, renew)
		testkit.NoError(t, err)
		elector, err := theirelection.NewLeaderElector(theirelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: renew, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
			Callbacks: theirelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
		})
		testkit.NoError(t, err)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			elector.Run(t.Context())
		}()
		time.Sleep(time.Second) // after the first renewal
		slow := server.Add(fault.Rule{Match: fault.Match{Config: cfg}, Hold: true})
		time.Sleep(15 * time.Second)
		leases := kubernetes.NewForConfigOrDie(server.Config()).CoordinationV1().Leases("default")
		lease, err := leases.Get(t.Context(), leaseName, metav1.GetOptions{})
		testkit.NoError(t, err)
		if *lease.Spec.HolderIdentity != "late" || time.Since(lease.Spec.RenewTime.Time) <= 15*time.Second {
			t.Fatalf("the Lease has not expired: %v", lease.Spec)
		}
		lease.Spec.HolderIdentity = new("next")
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		testkit.NoError(t, err)
		slow.Remove()
		<-ended
		lease, err = leases.Get(t.Context(), leaseName, metav1.GetOptions{})
		testkit.NoError(t, err)
		if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
			t.Errorf("%s holds the Lease", *h)
		}
	})
}
