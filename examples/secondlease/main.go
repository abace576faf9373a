// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command secondlease has two controllers that lead under a Lease each. So they may run on two
// replicas, and the loss of one Lease stops one of them. They count the entries and the bytes of
// each ConfigMap in a namespace and keep both in labels:
//
//	go run ./examples/secondlease -namespace default       in two terminals
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"strconv"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

func main() {
	namespace := flag.String("namespace", "default", "`namespace` of the Leases and the ConfigMaps")
	flag.Parse()
	cfg, err := client.LoadConfig("")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = operator(cfg, *namespace, controller.Options{}).Run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func operator(cfg *rest.Config, namespace string, o controller.Options) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{
		Name:           "secondlease",
		LeaderElection: &leaderelection.Options{Lease: "count-entries", Namespace: namespace},
	})
	mgr.Add(counter(mgr, namespace, "entries", o, func(data map[string]string) int { return len(data) }))

	second := mgr.AddLease(leaderelection.Options{Lease: "count-bytes", Namespace: namespace})
	second.Add(counter(mgr, namespace, "bytes", o, func(data map[string]string) (n int) {
		for key, value := range data {
			n += len(key) + len(value)
		}
		return n
	}))
	return mgr
}

// counter returns a controller that keeps a count in a label. Both share one list and watch.
func counter(mgr *manager.Manager, namespace, name string, o controller.Options, count func(map[string]string) int) *controller.Controller[types.NamespacedName] {
	r := &reconciler{
		cached: cache.ForScope[*corev1.ConfigMap](mgr.Cache(), cache.Scope{Namespaces: cache.NewSet(namespace)}),
		client: client.For[*corev1.ConfigMap](mgr.Client()),
		label:  "example.com/" + name,
		count:  count,
	}
	c := controller.New(name, r, o)
	c.Watch(source.Kind(r.cached, handler.Self()))
	return c
}

type reconciler struct {
	cached *cache.Handle[*corev1.ConfigMap]
	client *client.Handle[*corev1.ConfigMap]
	label  string
	count  func(map[string]string) int
}

func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := r.cached.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	if n := strconv.Itoa(r.count(m.Data)); m.Labels[r.label] != n {
		metav1.SetMetaDataLabel(&m.ObjectMeta, r.label, n)
		_, err = r.client.Update(ctx, m) // a conflict with the other controller is retried
	}
	return controller.Result{}, err
}
