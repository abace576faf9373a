// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command sharded is an operator whose replicas all work; each has a part of the keys:
//
//	go run ./examples/sharded -namespace default
//
// For each ConfigMap with the label example.com/site=wanted it keeps two more, NAME.page and
// NAME.feed, with the same text.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
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
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/term"
)

const name = "sites"

func main() {
	namespace := flag.String("namespace", "", "`namespace` of the Leases (default: the pod's)")
	health := flag.String("health", ":8081", "`address` for /livez and /readyz")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	cfg, err := client.LoadConfig("")
	if err == nil {
		mgr := operator(cfg, manager.Options{
			LeaderElection: &shard.Options{ // with &leaderelection.Options, one replica leads
				Election: leaderelection.Options{Lease: name, Namespace: *namespace},
			},
		})
		server.AddHealth(mgr, server.Options{Address: *health})
		err = mgr.Run(ctx)
	}
	if err != nil { // the kubelet restarts the process
		fmt.Fprintf(os.Stderr, "sharded: %v\n", err)
		os.Exit(1)
	}
}

var (
	site = labels.Set{"example.com/site": "wanted"}
	part = labels.Set{"example.com/site": "part"}
)

// operator returns one replica. Every replica watches all objects, so that a key can move fast.
func operator(cfg *rest.Config, o manager.Options) *manager.Manager {
	o.Name, o.RequireTerm = name, true // writes without the term of their slot fail
	mgr := manager.New(cfg, o)
	r := &reconciler{
		sites:  cache.ForScope[*corev1.ConfigMap](mgr.Cache(), cache.Scope{Labels: site.AsSelector()}),
		parts:  cache.ForScope[*corev1.ConfigMap](mgr.Cache(), cache.Scope{Labels: part.AsSelector()}),
		writes: client.For[*corev1.ConfigMap](mgr.Client()),
	}
	c := controller.New("site", r, controller.Options{})
	c.Watch(source.Kind(r.sites, handler.Self()))
	c.Watch(source.Kind(r.parts, handler.Owner(r.sites)))
	mgr.Add(c)
	return mgr
}

type reconciler struct {
	sites, parts *cache.Handle[*corev1.ConfigMap]
	writes       *client.Handle[*corev1.ConfigMap]
}

// Reconcile writes with its own context. When this replica loses the key's slot, a write is no
// longer sent.
func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	site, err := r.sites.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil // the garbage collector deletes the parts
	}
	for _, name := range []string{".page", ".feed"} {
		if err == nil {
			err = r.apply(ctx, site, key.Name+name)
		}
	}
	return controller.Result{}, err
}

// apply writes a part that differs from its site. The test reads from it who wrote it, and what
// the writer has seen.
func (r *reconciler) apply(ctx context.Context, site *corev1.ConfigMap, name string) error {
	was, err := r.parts.Get(ctx, types.NamespacedName{Namespace: site.Namespace, Name: name})
	if err == nil && was.Data["text"] == site.Data["text"] {
		return nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	leads := term.FromContext(ctx).Token()
	data := map[string]string{"text": site.Data["text"], "by": leads.Holder, "term": leads.ResourceVersion}
	if err == nil {
		data["saw"] = was.ResourceVersion
	}
	_, err = r.writes.Apply(ctx, coreac.ConfigMap(name, site.Namespace).WithLabels(part).
		WithOwnerReferences(r.sites.OwnerRef(site)).WithData(data))
	return err
}
