// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command ha is an operator that runs as several replicas; one acts at a time:
//
//	go run ./examples/ha -namespace default
//
// It keeps a checksum of each ConfigMap with the label example.com/checksum=wanted in an
// annotation.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/source"
)

// mark is the label that requests a checksum, and the annotation that contains it.
const mark = "example.com/checksum"

const lease = "checksum-operator"

func main() {
	namespace := flag.String("namespace", "", "`namespace` of the Lease (default: the pod's)")
	health := flag.String("health", ":8081", "`address` for /livez and /readyz")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	cfg, err := client.LoadConfig("")
	if err == nil {
		mgr := operator(cfg, manager.Options{
			LeaderElection: &leaderelection.Options{Lease: lease, Namespace: *namespace},
		})
		server.AddHealth(mgr, server.Options{Address: *health})
		err = mgr.Run(ctx)
	}
	if err != nil { // the kubelet restarts the process
		fmt.Fprintf(os.Stderr, "ha: %v\n", err)
		os.Exit(1)
	}
}

// operator returns one replica. Every replica watches and queues, so that a standby takes over
// immediately.
func operator(cfg *rest.Config, o manager.Options) *manager.Manager {
	o.Name = lease
	o.RequireTerm = true       // unfenced writes, without a Reconcile's context, fail
	o.Grace = 20 * time.Second // for running Reconciles; less than terminationGracePeriodSeconds
	mgr := manager.New(cfg, o)
	r := &reconciler{
		configMaps: cache.ForScope[*corev1.ConfigMap](mgr.Cache(), cache.Scope{Labels: labels.SelectorFromSet(labels.Set{mark: "wanted"})}),
		writes:     client.For[*corev1.ConfigMap](mgr.Client()),
	}
	c := controller.New("checksum", r, controller.Options{Workers: 4})
	c.Watch(source.Kind(r.configMaps, handler.Self()))
	mgr.Add(c) // its Reconciles run on the leader only
	return mgr
}

type reconciler struct {
	configMaps *cache.Handle[*corev1.ConfigMap]
	writes     *client.Handle[*corev1.ConfigMap]
}

// Reconcile writes with its own context, so the write carries the term. When this replica loses its
// Lease, the write is no longer sent.
func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	object, err := r.configMaps.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil || object.Annotations[mark] == checksum(object.Data) {
		return controller.Result{}, err
	}
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[mark] = checksum(object.Data)
	_, err = r.writes.Update(ctx, object) // with its version: a late write conflicts
	return controller.Result{}, err
}

func checksum(data map[string]string) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(sum, "%q=%q\n", key, data[key])
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}
