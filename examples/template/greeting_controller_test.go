package main

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/sweep"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// TestGreeting runs the operator against a real API server.
func TestGreeting(t *testing.T) {
	ctx, w := t.Context(), start(t)
	if err := w.Apply(ctx, "config/samples/greeting.yaml"); err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "default", Name: "greeting-sample"}
	w.reconciledGreeting(t, key, "hello")

	patch := []byte(`{"spec":{"message":"hello, world"}}`)
	if _, err := client.For[*v1alpha1.Greeting](w.admin).Patch(ctx, key, types.MergePatchType, patch); err != nil {
		t.Fatal(err)
	}
	w.reconciledGreeting(t, key, "hello, world")

	if err := client.For[*corev1.ConfigMap](w.admin).Delete(ctx, greetingConfigMap(key)); err != nil {
		t.Fatal(err)
	}
	w.reconciledGreeting(t, key, "hello, world")

	if err := w.mgr.FlushEvents(ctx); err != nil {
		t.Fatal(err)
	}
	for event, err := range client.For[*eventsv1.Event](w.admin).ListLive(ctx, client.ListOptions{Namespace: "default"}) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Regarding.Kind == "Greeting" && event.Note == "created ConfigMap greeting-sample" {
			return
		}
	}
	t.Error("no event records that the ConfigMap was created again")
}

// reconciledGreeting waits until the operator has nothing left to do, and checks what it did.
func (w *world) reconciledGreeting(t *testing.T, key types.NamespacedName, message string) {
	t.Helper()
	w.settle(t)
	obj, err := client.For[*v1alpha1.Greeting](w.admin).GetLive(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("the conditions are %v", obj.Status.Conditions)
	}
	owned, err := client.For[*corev1.ConfigMap](w.admin).GetLive(t.Context(), greetingConfigMap(key))
	if err != nil {
		t.Fatal(err)
	}
	if owned.Data["message"] != message || !metav1.IsControlledBy(owned, obj) {
		t.Errorf("the ConfigMap has %q and the owners %v", owned.Data["message"], owned.OwnerReferences)
	}
}

func greetingConfigMap(key types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: key.Name}
}

// TestGreeting_Sweep crashes the operator at each of its writes, and shows it old views.
func TestGreeting_Sweep(t *testing.T) {
	all, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "default", Name: "greeting-sample"}
	objects, configMaps := client.For[*v1alpha1.Greeting], client.For[*corev1.ConfigMap]
	sweep.Run(t, sweep.Scenario{
		Scheme: all,
		CRDs:   crds(),
		Operator: func(p sweep.Process) (sweep.Operator, error) {
			lease := leaderelection.Options{Lease: name, Namespace: "default"}
			return newOperator(p.Config, manager.Options{Logger: p.Logger, LeaderElection: &lease})
		},
		Steps: []sweep.Step{
			{Name: "create", Do: func(ctx context.Context, c *client.Client) error {
				_, err := objects(c).Create(ctx, &v1alpha1.Greeting{
					ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
					Spec:       v1alpha1.GreetingSpec{Message: "hello"},
				})
				return err
			}},
			{Name: "change", Do: func(ctx context.Context, c *client.Client) error {
				_, err := objects(c).Patch(ctx, key, types.MergePatchType, []byte(`{"spec":{"message":"hello, world"}}`))
				return err
			}},
			{Name: "delete the ConfigMap", Do: func(ctx context.Context, c *client.Client) error {
				return client.IgnoreNotFound(configMaps(c).Delete(ctx, greetingConfigMap(key)))
			}},
			{Name: "delete", Do: func(ctx context.Context, c *client.Client) error { return objects(c).Delete(ctx, key) }},
		},
	})
}
