// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/source"
)

// reconciles is a Reconcile of keys of objects.
type reconciles = controller.Reconciler[types.NamespacedName]

// twoKinds adds a controller for each of two kinds to a manager.
func twoKinds(mgr *manager.Manager, deploy, serve reconciles) {
	deployments := cache.For[*appsv1.Deployment](mgr.Cache())
	first := controller.New("deployment", deploy, controller.Options{})
	first.Watch(source.Kind(deployments, handler.Self()))
	mgr.Add(first)

	services := cache.For[*corev1.Service](mgr.Cache())
	second := controller.New("service", serve, controller.Options{})
	second.Watch(source.Kind(services, handler.Self()))
	second.Reads(deployments) // the same informer as the first controller's
	mgr.Add(second)
}

// version makes a version of an operator that keeps to its own objects.
func version(cfg *rest.Config, name string, own labels.Selector, r func(*cache.Handle[*appsv1.Deployment]) reconciles) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{
		Name:           name, // "web-operator", or "web-operator-next": also the field owner
		LeaderElection: &leaderelection.Options{Lease: name, Namespace: "default"},
	})
	// own is example.com/track=next, or !=next
	deployments := cache.ForScope[*appsv1.Deployment](mgr.Cache(), cache.Scope{Labels: own})
	c := controller.New("web", r(deployments), controller.Options{})
	c.Watch(source.Kind(deployments, handler.Self()))
	mgr.Add(c)
	return mgr
}

// limited makes a manager whose requests are limited.
func limited(cfg *rest.Config) *manager.Manager {
	cfg.QPS, cfg.Burst = 50, 100 // for all kinds together; watches do not count
	return manager.New(cfg, manager.Options{Name: "limited"})
}

// counted has a metric of its own.
type counted struct {
	images *prometheus.CounterVec
	pods   *cache.Handle[*corev1.Pod]
}

func newCounted(cfg *rest.Config) (*manager.Manager, *counted, error) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	if err != nil {
		return nil, nil, err
	}
	images := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "web_pulls_total", Help: "Reconciles by registry."}, []string{"registry"})
	if err := registry.Register(images); err != nil {
		return nil, nil, err
	}
	mgr := manager.New(cfg, manager.Options{Name: "counted", Metrics: m})
	r := &counted{images, cache.For[*corev1.Pod](mgr.Cache())}
	c := controller.New("counted", r, controller.Options{})
	c.Watch(source.Kind(r.pods, handler.Self()))
	mgr.Add(c)
	return mgr, r, nil
}

func (r *counted) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	pod, err := r.pods.Get(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	for _, c := range pod.Spec.Containers {
		registry, _, _ := strings.Cut(c.Image, "/")
		r.images.WithLabelValues(registry).Inc()
	}
	return controller.Result{}, nil
}

// noisy makes a controller that collects the events of one object for a minute.
func noisy(configMaps *cache.Handle[*corev1.ConfigMap], r reconciles) *controller.Controller[types.NamespacedName] {
	often := handler.Where(func(old, m *corev1.ConfigMap) bool {
		return old != nil && m != nil && m.Name == "heartbeat" // its updates alone
	})
	c := controller.New("noisy", r, controller.Options{})
	c.Watch(source.Kind(configMaps, handler.Self(), handler.After(time.Minute, often)))
	return c
}

// ownerAnnotation names the owner of an object in another namespace: namespace/name.
const ownerAnnotation = "example.com/owner"

// elsewhere makes a controller of Deployments whose children are in other namespaces.
func elsewhere(mgr *manager.Manager, r reconciles) {
	deployments, secrets := cache.For[*appsv1.Deployment](mgr.Cache()), cache.For[*corev1.Secret](mgr.Cache())
	c := controller.New("elsewhere", r, controller.Options{})
	c.Watch(source.Kind(deployments, handler.Self(), handler.GenerationChanged))
	c.Watch(source.Kind(secrets, handler.Map(ownerElsewhere), handler.AnnotationsChanged))
	mgr.Add(c)
}

func ownerElsewhere(_ context.Context, s *corev1.Secret) ([]types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(s.Annotations[ownerAnnotation], "/")
	if !ok {
		return nil, nil // not ours
	}
	return []types.NamespacedName{{Namespace: namespace, Name: name}}, nil
}

// applied applies a typed object.
func applied(ctx context.Context, c *client.Client, namespace string) (*corev1.Service, error) {
	desired := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, // required
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	return client.For[*corev1.Service](c).Apply(ctx, children.Typed(desired))
}

// labeled sets a label on the objects of one kind. It knows the kind only at run time.
type labeled struct {
	cached *cache.Handle[*unstructured.Unstructured]
	write  *client.Handle[*unstructured.Unstructured]
}

func labelKinds(mgr *manager.Manager, kinds ...schema.GroupVersionKind) {
	for _, kind := range kinds {
		r := &labeled{
			cached: cache.ForScope[*unstructured.Unstructured](mgr.Cache(), cache.Scope{Kind: kind}),
			write:  client.ForKind[*unstructured.Unstructured](mgr.Client(), kind),
		}
		c := controller.New("label-"+strings.ToLower(kind.Kind), r, controller.Options{})
		c.Watch(source.Kind(r.cached, handler.Self(), handler.LabelsChanged))
		mgr.Add(c)
	}
}

func (r *labeled) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	u, err := r.cached.Get(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	desired := u.DeepCopy()
	desired.SetLabels(labels.Merge(u.GetLabels(), labels.Set{"example.com/seen": "true"}))
	_, err = client.PatchFrom(ctx, r.write, u, desired) // sends nothing if nothing differs
	return controller.Result{}, err
}
