// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package operator serves Websites. For each it keeps a ConfigMap with the page, a Deployment of
// web servers and a Service. It reports their progress in the Website's status, and lists the site
// in the index of its namespace.
//
// Start reading at reconciler.go. objects.go defines the objects of a Website, webhooks.go its
// defaults, validation and versions, and rbac.go the operator's permissions.
package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/events"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/examples/website/api/v1alpha1"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/webhook"
)

// Name is the name of the operator, its Lease and its field manager for server-side apply.
const Name = "website-operator"

// Options configures New. The zero value works.
type Options struct {
	// LeaderElection makes only one of several replicas act. Default: nil, this process always
	// acts.
	LeaderElection manager.Coordinator
	// Webhooks are the result of Webhooks. Default: nil, this process answers no webhooks.
	Webhooks *webhook.Webhooks
	// Metrics observes the operator: see manager.Options. Default: nil, no metrics.
	Metrics manager.Metrics
	// Logger receives the operator's log. Default: slog.Default().
	Logger *slog.Logger
}

// Scheme returns a scheme with the built-in kinds and both versions of Website.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(scheme.AddToScheme(s), v1.AddToScheme(s), v1alpha1.AddToScheme(s))
}

// New returns the operator. Run of the manager starts it.
func New(cfg *rest.Config, o Options) (*manager.Manager, error) {
	s, err := Scheme()
	if err != nil {
		return nil, err
	}
	mgr := manager.New(cfg, manager.Options{
		Name: Name, Scheme: s, LeaderElection: o.LeaderElection, Metrics: o.Metrics, Logger: o.Logger,
	})
	if o.Webhooks != nil {
		o.Webhooks.AddTo(mgr)
	}
	r := &reconciler{
		websites:   cache.For[*v1.Website](mgr.Cache()),
		configMaps: cache.For[*corev1.ConfigMap](mgr.Cache()),
		client:     mgr.Client(),
		events:     events.For(mgr, events.Options{}),
	}
	services, deployments := cache.For[*corev1.Service](mgr.Cache()), cache.For[*appsv1.Deployment](mgr.Cache())
	r.children, err = children.New(r.websites, r.client, children.Of(r.configMaps), children.Of(services), children.Of(deployments))
	if err != nil {
		return nil, err
	}
	if r.finalizers, err = r.cleanup(); err != nil {
		return nil, err
	}
	c := controller.New("website", r, controller.Options{Workers: 8})
	c.Watch(source.Kind(r.websites, handler.Self(), handler.GenerationChanged))
	r.children.Watch(c)
	c.Watch(source.Kind(r.configMaps, handler.Func[types.NamespacedName](unlisted)))
	mgr.Add(c)
	return mgr, nil
}

// Installed returns nil if the API server serves Websites and their status, else an error with the
// remedy.
func Installed(ctx context.Context, c *client.Client) error {
	sites := client.For[*v1.Website](c)
	err := sites.Served(ctx)
	if err != nil && !errors.As(err, new(*client.NotServedError)) {
		return err
	}
	if err == nil {
		// The Website need not exist, nor be readable: the client looks for the subresource first.
		_, err = client.SubresourceOf[*v1.Website](sites, "status").Get(ctx, types.NamespacedName{Namespace: "default", Name: "any"})
	}
	if notServed := (*client.NotServedError)(nil); errors.As(err, &notServed) {
		return fmt.Errorf("%w: kubectl apply -k config/crd", err)
	}
	return nil
}
