// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
)

// replica makes one of several replicas that divide the sites.
func replica(cfg *rest.Config, namespace string, r controller.Reconciler[types.NamespacedName], usersOf func(context.Context, *corev1.Secret) ([]types.NamespacedName, error), report func(context.Context) error) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{
		Name: "website-operator",
		LeaderElection: &shard.Options{ // with &leaderelection.Options, one replica leads
			Election: leaderelection.Options{Lease: "website-operator", Namespace: namespace},
		},
	})
	sites := cache.ForScope[*corev1.ConfigMap](mgr.Cache(), cache.Scope{Slots: mgr.Slots()})
	deploys := cache.ForScope[*appsv1.Deployment](mgr.Cache(), cache.Scope{
		Slots: mgr.Slots(), SlotOwner: sites.GroupVersionKind(), // kept where their site is
	})
	secrets := cache.For[*corev1.Secret](mgr.Cache()) // many sites use one: every replica keeps all

	c := controller.New("site", r, controller.Options{})
	c.Watch(source.Kind(sites, handler.Self()))
	c.Watch(source.Kind(deploys, handler.Owner(sites)))
	c.Watch(source.Kind(secrets, handler.Map(usersOf)))
	mgr.Add(c)

	once := mgr.AddLease(leaderelection.Options{Lease: "website-operator-report", Namespace: namespace})
	once.AddLeaderOnly("report", report) // on one replica
	return mgr
}

// byTeam keeps the objects of a team in one slot. Names are TEAM.SITE.
func byTeam() *shard.Options {
	return &shard.Options{Partitioner: shard.ByFunc("team", func(key types.NamespacedName) string {
		team, _, _ := strings.Cut(key.Name, ".")
		return team
	})}
}
