package main

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOperator runs the operator against a real API server, with the permissions of config/rbac.
func TestOperator(t *testing.T) {
	ctx := t.Context()
	cluster, err := envtest.Start(ctx, envtest.Options{
		CRDs:          []string{"config/crd"},
		APIServerArgs: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.Apply(ctx, "config/manager/namespace.yaml", "config/rbac", "config/manager/deployment.yaml"); err != nil {
		t.Fatal(err)
	}
	mgr, stop := start(t, cluster)
	defer stop()
	admin, err := client.New(cluster.Config(), client.Options{Scheme: mgr.Client().Scheme(), FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()

	if err := cluster.Apply(ctx, "config/samples"); err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "default", Name: "sample"}
	reconciled(t, mgr, admin, key, "hello")

	patch := []byte(`{"spec":{"message":"hello, world"}}`)
	if _, err := client.For[*v1alpha1.Greeting](admin).Patch(ctx, key, types.MergePatchType, patch); err != nil {
		t.Fatal(err)
	}
	reconciled(t, mgr, admin, key, "hello, world")

	if err := client.For[*corev1.ConfigMap](admin).Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	reconciled(t, mgr, admin, key, "hello, world")

	if err := mgr.FlushEvents(ctx); err != nil {
		t.Fatal(err)
	}
	if rights := mgr.Rights(ctx); len(rights.Missing) > 0 || rights.Error != "" {
		t.Errorf("config/rbac lacks %v, error %q", rights.Missing, rights.Error)
	}
	for event, err := range client.For[*eventsv1.Event](admin).ListLive(ctx, client.ListOptions{Namespace: key.Namespace}) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Regarding.Name == key.Name && event.Series != nil && event.Series.Count == 3 {
			return
		}
	}
	t.Error("no event counts the three applies")
}

// start runs the operator as its ServiceAccount, with leader election, until stop is called.
func start(t *testing.T, cluster *envtest.Cluster) (mgr *manager.Manager, stop func()) {
	t.Helper()
	cfg, err := cluster.ConfigFor("system:serviceaccount:greeting-system:greeting-operator")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	counts, err := metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err = newOperator(cfg, manager.Options{
		Metrics:        counts,
		LeaderElection: &leaderelection.Options{Lease: name, Namespace: "greeting-system"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()
	return mgr, func() {
		if n, err := testutil.GatherAndCount(registry, "controller_runtime_reconcile_time_seconds"); err != nil || n != 1 {
			t.Errorf("%d controllers have metrics, error: %v", n, err)
		}
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}

// reconciled waits until the operator has nothing left to do, and checks what it did.
func reconciled(t *testing.T, mgr *manager.Manager, admin *client.Client, key types.NamespacedName, message string) {
	t.Helper()
	if err := mgr.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	obj, err := client.For[*v1alpha1.Greeting](admin).GetLive(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("the conditions are %v", obj.Status.Conditions)
	}
	owned, err := client.For[*corev1.ConfigMap](admin).GetLive(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if owned.Data["message"] != message || !metav1.IsControlledBy(owned, obj) {
		t.Errorf("the ConfigMap has %q and the owners %v", owned.Data["message"], owned.OwnerReferences)
	}
}
