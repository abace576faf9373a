// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"os"
	"strings"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

const finalizer = "example.com/cleanup"

// porting has what docs/controller-runtime.md shows: for each Deployment it keeps a ConfigMap with
// its image, and reports in a condition of the Deployment.
type porting struct {
	deployments *cache.Handle[*appsv1.Deployment]
	configMaps  *cache.Handle[*corev1.ConfigMap]
	client      *client.Client
	cleanUp     func(ctx context.Context, d *appsv1.Deployment) error
}

// newPorting is For, Owns and WithOptions of the builder.
func newPorting(mgr *manager.Manager, cleanUp func(context.Context, *appsv1.Deployment) error) *porting {
	r := &porting{
		deployments: cache.For[*appsv1.Deployment](mgr.Cache()),
		configMaps:  cache.For[*corev1.ConfigMap](mgr.Cache()),
		client:      mgr.Client(),
		cleanUp:     cleanUp,
	}
	c := controller.New("porting", r, controller.Options{Workers: 4})
	c.Watch(source.Kind(r.deployments, handler.Self(), handler.GenerationChanged))
	c.Watch(source.Kind(r.configMaps, handler.Owner(r.deployments)))
	mgr.Add(c)
	return r
}

func (r *porting) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	d, err := r.deployments.Get(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	deployments := client.For[*appsv1.Deployment](r.client)
	if d.DeletionTimestamp != nil {
		if err := r.cleanUp(ctx, d); err != nil {
			return controller.Result{}, err
		}
		_, err := deployments.RemoveFinalizer(ctx, d, finalizer)
		return controller.Result{}, err
	}
	if d, err = deployments.EnsureFinalizer(ctx, d, finalizer); err != nil {
		return controller.Result{}, err
	}
	if err := r.apply(ctx, d); err != nil {
		return controller.Result{}, err
	}
	condition := appsv1.DeploymentCondition{Type: "example.com/Listed", Status: corev1.ConditionTrue}
	if len(d.Status.Conditions) > 0 && d.Status.Conditions[0].Type == condition.Type {
		return controller.Result{}, nil
	}
	d.Status.Conditions = []appsv1.DeploymentCondition{condition}
	stored, err := deployments.UpdateStatus(ctx, d) // d itself does not change
	if err != nil {
		return controller.Result{}, err
	}
	controller.Logger(ctx).Info("reported", "condition", condition.Type, "resourceVersion", stored.ResourceVersion)
	return controller.Result{}, nil
}

func (r *porting) apply(ctx context.Context, owner *appsv1.Deployment) error {
	current, err := r.configMaps.Get(ctx, types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	desired := coreac.ConfigMap(owner.Name, owner.Namespace).
		WithOwnerReferences(r.deployments.OwnerRef(owner)).
		WithData(map[string]string{"image": owner.Spec.Template.Spec.Containers[0].Image})
	_, err = client.For[*corev1.ConfigMap](r.client).Apply(ctx, desired, client.UnlessAlready(current))
	return err
}

// byNode is IndexField and MatchingFields.
func byNode(pods *cache.Handle[*corev1.Pod]) func(ctx context.Context, node string) ([]*corev1.Pod, error) {
	index := cache.NewIndex(pods, "node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
	return func(ctx context.Context, node string) ([]*corev1.Pod, error) {
		return index.List(ctx, node, cache.ListOptions{Namespace: "default"})
	}
}

// watchNamespaces is DefaultNamespaces, from the variable WATCH_NAMESPACE.
func watchNamespaces(mgr *manager.Manager) *cache.Handle[*corev1.Pod] {
	var scope cache.Scope // all namespaces
	if names := os.Getenv("WATCH_NAMESPACE"); names != "" {
		scope.Namespaces = cache.NewSet(strings.Split(names, ",")...)
	}
	return cache.ForScope[*corev1.Pod](mgr.Cache(), scope) // the same scope for each kind
}

// onlyMetadata is builder.OnlyMetadata.
func onlyMetadata(mgr *manager.Manager) *cache.Handle[*metav1.PartialObjectMetadata] {
	return cache.ForScope[*metav1.PartialObjectMetadata](mgr.Cache(), cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("Secret")})
}

// syncPeriod is SyncPeriod.
func syncPeriod(mgr *manager.Manager) *cache.Handle[*corev1.Pod] {
	return cache.ForScope[*corev1.Pod](mgr.Cache(), cache.Scope{Resync: 10 * time.Hour})
}

// rateLimiter is Options.RateLimiter.
func rateLimiter(r controller.Reconciler[types.NamespacedName]) *controller.Controller[types.NamespacedName] {
	return controller.NewWithQueue("limited", r, controller.Options{}, workqueue.Options[types.NamespacedName]{
		// Backoff is for each key, Limiter for all retries together.
		Backoff: workqueue.Exponential{Base: time.Second, Max: 5 * time.Minute},
		Limiter: rate.NewLimiter(10, 100),
	})
}

// everyReplica is NeedLeaderElection: false.
func everyReplica(mgr *manager.Manager, c *controller.Controller[types.NamespacedName]) {
	mgr.AddEverywhere(c.Name(), c.Run)
}

// urgent is a higher Priority.
func urgent(c *controller.Controller[types.NamespacedName], key types.NamespacedName) {
	c.Queue().AddWith(key, workqueue.AddOptions{Class: workqueue.Interactive})
}

// events is GetEventRecorderFor.
func events(mgr *manager.Manager, cfg *rest.Config, scheme *runtime.Scheme) (record.EventRecorder, error) {
	clientset, err := kubernetes.NewForConfig(cfg) // not mgr.Client().Config(): no key waits for it
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster()
	mgr.AddEverywhere("events", func(ctx context.Context) error {
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events("")})
		<-ctx.Done()
		broadcaster.Shutdown()
		return nil
	})
	return broadcaster.NewRecorder(scheme, corev1.EventSource{Component: "website-operator"}), nil
}

// ownerReference is metav1.NewControllerRef: for a typed object instead of an apply configuration.
func ownerReference(owner *appsv1.Deployment) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: owner.Namespace,
		Name:      owner.Name,
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("Deployment")),
		},
	}}
}

// unlessServed is meta.IsNoMatchError: a kind whose CRD may be missing.
func unlessServed(ctx context.Context, c *client.Client) (bool, error) {
	err := client.For[*appsv1.Deployment](c).Served(ctx)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}
