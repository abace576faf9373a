// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/finalizer"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/owner"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/status"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// moving has the small parts of docs/controller-runtime.md: for each Service it keeps a ConfigMap,
// and reports in a condition and an event.
type moving struct {
	services *cache.Handle[*corev1.Service]
	client   *client.Client
	events   *events.Recorder
}

// moved returns the manager's options, with the fields of controller-runtime that they replace.
func moved() (manager.Options, error) {
	m, err := metrics.New(prometheus.NewRegistry()) // metrics.Registry
	if err != nil {
		return manager.Options{}, err
	}
	return manager.Options{
		Name: "website-operator",
		Cache: cache.Options{
			Namespaces: cache.ParseNamespaces(os.Getenv("WATCH_NAMESPACE")), // DefaultNamespaces
			Resync:     10 * time.Hour,                                      // SyncPeriod
		},
		Metrics: m,
	}, nil
}

// serveMoved has the servers.
func serveMoved(mgr *manager.Manager) {
	server.AddHealth(mgr, server.Options{})                               // HealthProbeBindAddress
	server.AddMetrics(mgr, server.Options{Address: ":8080", Plain: true}) // Metrics.BindAddress
}

// newMoving wires the controller, with what WithOptions sets.
func newMoving(mgr *manager.Manager) *moving {
	r := &moving{
		services: cache.For[*corev1.Service](mgr.Cache()),
		client:   mgr.Client(),
		events:   events.For(mgr, events.Options{}), // GetEventRecorder, GetEventRecorderFor
	}
	c := controller.New("moving", r, controller.Options{
		Workers:  4,           // MaxConcurrentReconciles
		Deadline: time.Minute, // ReconciliationTimeout
		// RateLimiter: Backoff is for each key, Limiter for all retries together.
		Backoff: workqueue.Exponential{Base: time.Second, Max: 5 * time.Minute},
		Limiter: rate.NewLimiter(10, 100),
	})
	c.Watch(source.Kind(r.services, handler.Self()))
	mgr.Add(c)
	return r
}

func (r *moving) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	service, err := r.services.Get(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.list(ctx, service); err != nil {
		return controller.Result{}, err
	}
	if err := r.report(ctx, service); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{RequeueAfter: time.Hour, Class: new(workqueue.Background)}, nil
}

// list is CreateOrUpdate with SetControllerReference, and an event.
func (r *moving) list(ctx context.Context, service *corev1.Service) error {
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}}
	_, result, err := client.CreateOrUpdate(ctx, client.For[*corev1.ConfigMap](r.client), list, func(m *corev1.ConfigMap) error {
		m.Data = map[string]string{"type": string(service.Spec.Type)}
		return owner.Of(r.services, service).SetController(m) // SetControllerReference
	})
	if err != nil {
		r.events.Eventf(ctx, service, events.Warning, "ListFailed", "WriteConfigMap", "cannot write the ConfigMap: %v", err)
		return err
	}
	if result != client.Unchanged {
		r.events.Eventf(ctx, service, events.Normal, "Listed", "WriteConfigMap", "the ConfigMap is %s", result)
	}
	return nil
}

// report is meta.SetStatusCondition, then Status().Update.
func (r *moving) report(ctx context.Context, service *corev1.Service) error {
	s := status.For(service, service.Status.Conditions)
	s.True("example.com/Listed", "AsExpected", "the ConfigMap has the type")
	service.Status.Conditions = s.Conditions()
	_, err := status.Update(ctx, client.For[*corev1.Service](r.client), s, service)
	return err
}

// addFinalizer is controllerutil.AddFinalizer, then Update.
func addFinalizer(ctx context.Context, services *client.Handle[*corev1.Service], service *corev1.Service) error {
	added, err := finalizer.Add(service, "example.com/cleanup") // controllerutil.AddFinalizer
	if err != nil || !added {
		return err
	}
	_, err = services.Update(ctx, service)
	return err
}

// everyReplica is NeedLeaderElection: false.
func everyReplica(mgr *manager.Manager, c *controller.Controller[types.NamespacedName]) {
	mgr.AddControllerEverywhere(c)
}

// urgent is a higher Priority.
func urgent(c *controller.Controller[types.NamespacedName], key types.NamespacedName) {
	c.Queue().AddWith(key, workqueue.AddOptions{Class: workqueue.Interactive})
}

// severalClusters is a controller of multicluster-runtime: its keys have the cluster.
func severalClusters(mgr *manager.Manager, cfg *rest.Config, r controller.Reconciler[handler.ClusterKey]) {
	west := mgr.AddCluster("west", cfg)
	c := controller.New("everywhere", r, controller.Options{})
	c.Watch(source.Kind(cache.For[*corev1.Service](mgr.Cache()), handler.InCluster("east", handler.Self())))
	c.Watch(source.Kind(cache.For[*corev1.Service](west.Cache()), handler.InCluster("west", handler.Self())))
	mgr.Add(c)
}
