package main

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/sweep"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// TestSweep crashes the operator at each of its writes, and shows it old views.
func TestSweep(t *testing.T) {
	all := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(scheme.AddToScheme, v1alpha1.AddToScheme)
	if err := builder.AddToScheme(all); err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "default", Name: "sample"}
	objects, configMaps := client.For[*v1alpha1.Greeting], client.For[*corev1.ConfigMap]
	sweep.Run(t, sweep.Scenario{
		Scheme: all,
		CRDs:   []string{"config/crd"},
		Operator: func(p sweep.Process) (sweep.Operator, error) {
			lease := leaderelection.Options{Lease: name, Namespace: key.Namespace}
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
				return client.IgnoreNotFound(configMaps(c).Delete(ctx, key))
			}},
			{Name: "delete", Do: func(ctx context.Context, c *client.Client) error { return objects(c).Delete(ctx, key) }},
		},
	})
}
