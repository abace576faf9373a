// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command clusters is one operator for two clusters. It mirrors the ConfigMaps with the label
// example.com/mirror=wanted from one cluster to the other:
//
//	go run ./examples/clusters -from east.kubeconfig -to west.kubeconfig -namespace default
//
// The namespaces must exist in both.
package main

import (
	"context"
	"flag"
	"log"
	"maps"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// wanted is the label of ConfigMaps to mirror. The mirrors have it, too.
var wanted = labels.Set{"example.com/mirror": "wanted"}

func main() {
	from := flag.String("from", "", "`kubeconfig` of the cluster to read (default: as kubectl)")
	to := flag.String("to", "", "`kubeconfig` of the cluster to write")
	namespace := flag.String("namespace", "default", "`namespace` of the Lease, in the first cluster")
	flag.Parse()
	east, err := client.LoadConfig(*from)
	if err != nil {
		log.Fatal(err)
	}
	west, err := client.LoadConfig(*to)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = operator(east, west, leaderelection.Options{Namespace: *namespace}).Run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func operator(from, to *rest.Config, l leaderelection.Options) *manager.Manager {
	l.Lease = "mirror"
	mgr := manager.New(from, manager.Options{Name: "mirror", LeaderElection: &l, RequireTerm: true})
	west := mgr.AddCluster("west", to)
	scope := cache.Scope{Labels: wanted.AsSelector()}
	r := &reconciler{
		originals: cache.ForScope[*corev1.ConfigMap](mgr.Cache(), scope),
		mirrors:   cache.ForScope[*corev1.ConfigMap](west.Cache(), scope),
		writes:    client.For[*corev1.ConfigMap](west.Client()),
	}
	c := controller.New("mirror", r, controller.Options{})
	c.Watch(source.Kind(r.originals, handler.Self()))
	c.Watch(source.Kind(r.mirrors, handler.Self())) // a change there is undone
	mgr.Add(c)
	return mgr
}

type reconciler struct {
	originals, mirrors *cache.Handle[*corev1.ConfigMap]
	writes             *client.Handle[*corev1.ConfigMap]
}

// Reconcile makes the mirror equal to the original. An original and its mirror have the same key.
func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	mirror, err := r.mirrors.Get(ctx, key)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	exists := err == nil
	original, err := r.originals.Get(ctx, key)
	switch {
	case apierrors.IsNotFound(err) && exists:
		err = r.writes.Delete(ctx, key, client.Preconditions(mirror.UID, mirror.ResourceVersion))
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case err == nil && (!exists || !maps.Equal(mirror.Data, original.Data)):
		_, err = r.writes.Apply(ctx, coreac.ConfigMap(key.Name, key.Namespace).WithLabels(wanted).WithData(original.Data))
	}
	return controller.Result{}, err
}
