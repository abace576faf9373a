package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

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
	cluster := startCluster(t)
	return &world{Cluster: cluster, mgr: runOperator(t, cluster), admin: admin(t, cluster.Config())}
}

// startCluster starts a real API server with the manifests of the operator, which does not run.
func startCluster(t *testing.T) *envtest.Cluster {
	t.Helper()
	ctx := t.Context()
	cluster, err := envtest.Start(ctx, envtest.Options{
		CRDs:          crds(),
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
	return cluster
}

// crds are the files and directories with the CRDs of the tests.
func crds() []string {
	return []string{
		"config/crd",
	}
}

// admin returns a client of a user who may do everything.
func admin(t *testing.T, cfg *rest.Config) *client.Client {
	t.Helper()
	s, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: s, FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// runOperator runs the operator as its ServiceAccount, with leader election.
func runOperator(t *testing.T, cluster *envtest.Cluster) *manager.Manager {
	t.Helper()
	registry := prometheus.NewRegistry()
	counts, err := metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := newOperator(account(t, cluster), manager.Options{
		Logger:         logger(t),
		Metrics:        counts,
		LeaderElection: &leaderelection.Options{Lease: name, Namespace: namespace},
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, mgr)
	t.Cleanup(func() {
		if n, err := testutil.GatherAndCount(registry, "controller_runtime_reconcile_time_seconds"); err != nil || n == 0 {
			t.Errorf("%d controllers have metrics, error: %v", n, err)
		}
	})
	return mgr
}

// logger returns a logger whose warnings and errors are printed with the test, if it fails.
func logger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// account is the operator's ServiceAccount.
func account(t *testing.T, cluster *envtest.Cluster) *rest.Config {
	t.Helper()
	cfg, err := cluster.ConfigFor("system:serviceaccount:" + namespace + ":" + name)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// run runs a manager until the end of the test.
func run(t *testing.T, mgr *manager.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- mgr.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
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
