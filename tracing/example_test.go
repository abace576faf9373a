// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/tracing"
)

// copier copies each ConfigMap into a Secret.
type copier struct {
	maps    *cache.Handle[*corev1.ConfigMap]
	secrets *cache.Handle[*corev1.Secret]
	write   *client.Handle[*corev1.Secret]
}

func newCopier(cfg *rest.Config) *manager.Manager {
	cfg.Wrap(tracing.Requests(nil)) // before the manager makes its client
	mgr := manager.New(cfg, manager.Options{
		Name: "copier",
		Hook: tracing.Reconciles(nil),
	})
	r := &copier{cache.For[*corev1.ConfigMap](mgr.Cache()), cache.For[*corev1.Secret](mgr.Cache()), client.For[*corev1.Secret](mgr.Client())}
	c := controller.New("copier", r, controller.Options{})
	c.Watch(source.Kind(r.maps, handler.Self()))
	c.Watch(source.Kind(r.secrets, handler.Self()))
	mgr.Add(c)
	return mgr
}

func (r *copier) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := r.maps.Get(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	secret, err := r.secrets.Get(ctx, key)
	if client.IgnoreNotFound(err) != nil {
		return controller.Result{}, err
	}
	if err != nil {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	}
	_, _, err = client.CreateOrUpdate(ctx, r.write, secret, func(s *corev1.Secret) error {
		s.Data = map[string][]byte{"copy": []byte(m.Data["a"])}
		return nil
	}, client.TraceParent(tracing.TraceParent(ctx)))
	return controller.Result{}, err
}

func Example() {
	// A program has an exporter for OTLP, WithBatcher, and a Shutdown after Run.
	exporter := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(exporter)))

	server := sim.NewServer(sim.ConfigMaps, sim.Secrets)
	server.Put(sim.ConfigMaps, configMap("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	mgr, ended := newCopier(server.Config()), make(chan error, 1)
	go func() { ended <- mgr.Run(ctx) }()
	if err := mgr.Idle(ctx); err != nil {
		fmt.Println(err)
	}
	stop()
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
	for _, s := range exporter.GetSpans()[:3] {
		fmt.Println(s.Name, len(s.Links), "link")
	}
	// Output:
	// get secrets 0 link
	// create secrets 0 link
	// Reconcile copier 1 link
}
