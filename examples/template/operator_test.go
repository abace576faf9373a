package main

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "sample-operator-system"

// world is a real API server with the operator, which has the permissions of config/rbac only.
type world struct {
	*envtest.Cluster

	mgr   *manager.Manager
	admin *client.Client
}

// start starts a world for the time of the test.
func start(t *testing.T) *world {
	t.Helper()
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
	if err := cluster.Apply(ctx, "config/manager/namespace.yaml", "config/rbac", "config/manager", "config/metrics/role.yaml", "config/metrics/service.yaml"); err != nil {
		t.Fatal(err)
	}
	w := &world{Cluster: cluster, mgr: runOperator(t, cluster)}
	if w.admin, err = client.New(cluster.Config(), client.Options{Scheme: w.mgr.Client().Scheme(), FieldOwner: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.admin.Close)
	return w
}

// runOperator runs the operator as its ServiceAccount, with leader election.
func runOperator(t *testing.T, cluster *envtest.Cluster) *manager.Manager {
	t.Helper()
	cfg, err := cluster.ConfigFor("system:serviceaccount:" + namespace + ":" + name)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	counts, err := metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := newOperator(cfg, manager.Options{
		Metrics:        counts,
		LeaderElection: &leaderelection.Options{Lease: name, Namespace: namespace},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()
	t.Cleanup(func() {
		if n, err := testutil.GatherAndCount(registry, "controller_runtime_reconcile_time_seconds"); err != nil || n == 0 {
			t.Errorf("%d controllers have metrics, error: %v", n, err)
		}
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	return mgr
}

// settle waits until the operator has nothing left to do.
func (w *world) settle(t *testing.T) {
	t.Helper()
	if err := w.mgr.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rights := w.mgr.Rights(t.Context()); len(rights.Missing) > 0 || rights.Error != "" {
		t.Errorf("config/rbac lacks %v, error %q", rights.Missing, rights.Error)
	}
}
