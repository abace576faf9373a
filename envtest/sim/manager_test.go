// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// keeper keeps a Secret for each ConfigMap.
type keeper struct {
	wanted *cache.Handle[*corev1.ConfigMap]
	made   *cache.Handle[*corev1.Secret]
	writes *client.Handle[*corev1.Secret]
}

func (k *keeper) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	owner, err := k.wanted.Get(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	if _, err := k.made.Get(ctx, key); !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	_, err = k.writes.Create(ctx, secret)
	return controller.Result{}, err
}

// replica is an operator with leader election.
func replica(cfg *rest.Config, id string) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{
		Name: "keeper", Logger: slog.New(slog.DiscardHandler), RequireTerm: true,
		LeaderElection: &leaderelection.Options{Namespace: "default", Lease: "keeper", Identity: id, LeaseDuration: time.Minute},
	})
	k := &keeper{
		wanted: cache.For[*corev1.ConfigMap](mgr.Cache()), made: cache.For[*corev1.Secret](mgr.Cache()), writes: client.For[*corev1.Secret](mgr.Client()),
	}
	c := controller.New("keeper", k, controller.Options{})
	c.Watch(source.Kind(k.wanted, handler.Self()))
	c.Watch(source.Kind(k.made, handler.Owner(k.wanted)))
	mgr.Add(c)
	return mgr
}

// TestV4_TwoReplicasRunForHoursOfVirtualTime runs whole managers with rules in a bubble.
func TestV4_TwoReplicasRunForHoursOfVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases)
		defer server.Close()
		ctx, stop := context.WithCancel(t.Context())
		results := make(chan error, 2)
		cfgs := map[string]*rest.Config{"one": server.Config(), "two": server.Config()}
		for id, cfg := range cfgs {
			go func() { results <- replica(cfg, id).Run(ctx) }()
		}
		n := 0
		want := func(step string) {
			t.Helper()
			n++
			server.Put(sim.ConfigMaps, configMap(fmt.Sprintf("%d", n)))
			time.Sleep(10 * time.Minute)
			testkit.Equal(t, server.Stored(sim.Secrets), n, step)
		}
		leader := func() string {
			lease := server.Object(sim.Leases, "default", "keeper")
			id, _ := lease.Object["spec"].(map[string]any)["holderIdentity"].(string)
			return id
		}
		began := time.Now()
		want("at first")
		writes := fault.Match{Verbs: []string{"create"}, Resources: []string{"secrets"}}
		refused := server.Add(fault.Rule{Match: writes, Times: 3, Refuse: apierrors.NewInternalError(fmt.Errorf("try again"))})
		want("refused")
		lost := server.Add(fault.Rule{Match: writes, Times: 1, Lose: true})
		want("lost answers")
		cut := server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, CutAfter: 3 * time.Minute})
		late := server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Lag: 20 * time.Second})
		want("late and cut watches")
		for _, f := range []*fault.Fault{cut, late} {
			f.Remove()
		}

		first := leader()
		cutOff := fault.Match{Config: cfgs[first]}
		away := server.Add(fault.Rule{Match: cutOff, Hold: true, Freeze: true})
		want("the leader is cut off")
		testkit.NotEqual(t, leader(), first, "the leader after the cut")
		away.Remove()
		time.Sleep(3 * time.Hour)
		want("after some hours")

		server.Remove(sim.ConfigMaps, "default", "1") // its Secret goes with it
		testkit.Equal(t, server.Stored(sim.Secrets), n-1, "after a removal")
		time.Sleep(3 * time.Hour)
		for i, f := range []*fault.Fault{refused, lost, cut, late, away} {
			testkit.NotEqual(t, f.Hits(), 0, "rule", i)
		}
		stop()
		for range cfgs {
			if err := <-results; err != nil {
				t.Logf("a replica ended: %v", err)
			}
		}
		testkit.AtLeast(t, time.Since(began), 6*time.Hour)
		testkit.Equal(t, server.Watches(), 0)
	})
}
