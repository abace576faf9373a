// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command embedded is a host program with client-go's informer factory and elector. A controller of
// Setpoint uses both: it needs no manager and no watch of its own. It counts the entries of each
// ConfigMap in a namespace and keeps the count in a label:
//
//	go run ./examples/embedded -namespace default
//
// For a host with flags, metrics and health checks, see examples/kubestyle.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os/signal"
	"strconv"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

const label = "example.com/entries"

func main() {
	namespace := flag.String("namespace", "default", "`namespace` of the Lease and the ConfigMaps")
	flag.Parse()
	cfg, err := client.LoadConfig("")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = host(ctx, cfg, *namespace, controller.Options{})
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func host(ctx context.Context, cfg *rest.Config, namespace string, o controller.Options) error {
	setpoint, err := client.New(cfg, client.Options{FieldOwner: "embedded"})
	if err != nil {
		return err
	}
	defer setpoint.Close()
	clientset, err := kubernetes.NewForConfigAndClient(setpoint.Config(), setpoint.HTTPClient())
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(namespace))
	configMaps := factory.Core().V1().ConfigMaps()

	c := controller.New("entries", &reconciler{configMaps.Lister(), client.For[*corev1.ConfigMap](setpoint)}, o)
	c.Watch(source.Kind(cache.Adopt[*corev1.ConfigMap](nil, configMaps.Informer(), cache.AdoptOptions{}), handler.Self()))

	if err := c.Validate(); err != nil {
		return err
	}

	everywhere, cool := context.WithCancel(context.WithoutCancel(ctx))
	warmed := make(chan error, 1)
	go func() { warmed <- c.Warm(everywhere) }() // on every replica: the queue fills
	factory.StartWithContext(everywhere)
	defer factory.Shutdown()
	err = elect(ctx, clientset, namespace, c.Lead) // on the leader: workers take keys
	cool()
	return errors.Join(err, <-warmed)
}

type reconciler struct {
	cached corelisters.ConfigMapLister // the host's; read your writes holds for it, too
	client *client.Handle[*corev1.ConfigMap]
}

func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := r.cached.ConfigMaps(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	if entries := strconv.Itoa(len(m.Data)); m.Labels[label] != entries {
		m = m.DeepCopy() // a lister's objects are shared
		metav1.SetMetaDataLabel(&m.ObjectMeta, label, entries)
		_, err = r.client.Update(ctx, m)
	}
	return controller.Result{}, err
}
