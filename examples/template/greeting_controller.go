package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/status"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// The permissions that the reconciler needs. `make generate` writes config/rbac/role.yaml from
// them, and the tests run the operator with these permissions only.
// +kubebuilder:rbac:groups=demo.example.com,resources=greetings,verbs=list;watch
// +kubebuilder:rbac:groups=demo.example.com,resources=greetings/status,verbs=update
// +kubebuilder:rbac:groups=demo.example.com,resources=greetings/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch;delete

// GreetingReconciler keeps the children of each Greeting.
type GreetingReconciler struct {
	objects  *cache.Handle[*v1alpha1.Greeting]
	children *children.Set[*v1alpha1.Greeting]
	client   *client.Client
	events   *events.Recorder
}

// addGreeting declares the kinds that the reconciler reads, and the events that make a key due.
func addGreeting(mgr *manager.Manager) error {
	r := &GreetingReconciler{
		objects: cache.For[*v1alpha1.Greeting](mgr.Cache()),
		client:  mgr.Client(),
		events:  events.For(mgr, events.Options{}),
	}
	configMaps := cache.For[*corev1.ConfigMap](mgr.Cache())
	var err error
	if r.children, err = children.New(r.objects, r.client, children.Of(configMaps)); err != nil {
		return fmt.Errorf("declaring the children: %w", err)
	}
	// An object whose Reconciles fail for 10 minutes gets an event.
	failing := events.Failing(r, 10*time.Minute, r.objects, r.events)
	c := controller.New("greeting", failing, controller.Options{RequireKinds: true})
	c.Watch(source.Kind(r.objects, handler.Self(), handler.GenerationChanged))
	r.children.Watch(c)
	mgr.Add(c)
	return nil
}

// Reconcile reads one object and applies all that its spec asks for, after every event.
func (r *GreetingReconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	obj, err := r.objects.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil // the garbage collector deletes what it owned
	}
	if err != nil {
		return controller.Result{}, err // retried with backoff
	}
	if obj.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	failure := r.apply(ctx, obj)
	return controller.Result{}, errors.Join(failure, r.report(ctx, obj, failure))
}

// apply creates or updates the children. It sends nothing if they are as desired, and does not
// touch objects of others.
func (r *GreetingReconciler) apply(ctx context.Context, obj *v1alpha1.Greeting) error {
	desired := coreac.ConfigMap(obj.Name, obj.Namespace).
		WithData(map[string]string{"message": obj.Spec.Message})
	result, err := r.children.Reconcile(ctx, obj, desired)
	if changes := result.Changes(); changes != "" {
		r.events.Eventf(ctx, obj, events.Normal, "Applied", "ApplyChildren", "%s", changes)
	}
	return err
}

// report writes the condition Ready, if it has changed.
func (r *GreetingReconciler) report(ctx context.Context, obj *v1alpha1.Greeting, failure error) error {
	s, before := status.For(obj, obj.Status.Conditions), obj.Status.Conditions
	if failure != nil {
		s.False(v1alpha1.ConditionReady, "ApplyFailed", failure.Error())
	} else {
		s.True(v1alpha1.ConditionReady, "Applied", "")
	}
	obj.Status.Conditions = s.Conditions()
	if slices.Equal(before, obj.Status.Conditions) {
		return s.Err()
	}
	_, err := status.Update(ctx, client.For[*v1alpha1.Greeting](r.client), s, obj)
	return err
}
