// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package bridged

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c5c3/memcached-operator/api/v1beta1"
	"github.com/c5c3/memcached-operator/internal/controller"
	"github.com/go-logr/logr/testr"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	theirs "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// levels are the ways to wire the operator's reconciler.
var levels = map[string]struct {
	manager func(*rest.Config, ctrl.Options) (ctrl.Manager, error)
	setUp   func(ctrl.Manager, *controller.MemcachedReconciler) error
}{
	"controller-runtime": {theirs.NewManager, unchanged},
	"level a":            {ctrl.NewManager, unchanged},
	"level b":            {ctrl.NewManager, bridged},
}

func unchanged(mgr ctrl.Manager, r *controller.MemcachedReconciler) error {
	return r.SetupWithManager(mgr)
}

// bridged is the operator's SetupWithManager with the import of crbridge.
func bridged(mgr ctrl.Manager, r *controller.MemcachedReconciler) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1beta1.Memcached{}).
		Owns(&appsv1.Deployment{}).
		Owns(&autoscalingv2.HorizontalPodAutoscaler{}).
		Owns(&corev1.Service{}).
		Owns(&policyv1.PodDisruptionBudget{}).
		Owns(&networkingv1.NetworkPolicy{}).
		Owns(&monitoringv1.ServiceMonitor{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(secretsOf(mgr.GetClient()))).
		Named("memcached").
		Complete(r)
}

// secretsOf is the operator's function, which is not exported.
func secretsOf(c client.Client) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) (all []reconcile.Request) {
		var list v1beta1.MemcachedList
		if err := c.List(ctx, &list, client.InNamespace(obj.GetNamespace())); err != nil {
			return nil
		}
		for _, mc := range list.Items {
			s := mc.Spec.Security
			if s != nil && (s.SASL != nil && s.SASL.CredentialsSecretRef.Name == obj.GetName() ||
				s.TLS != nil && s.TLS.CertificateSecretRef.Name == obj.GetName()) {
				all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&mc)})
			}
		}
		return all
	}
}

// start runs the operator until the test ends.
func start(t *testing.T, level string, cfg *rest.Config, s *runtime.Scheme) ctrl.Manager {
	t.Helper()
	mgr, err := levels[level].manager(cfg, ctrl.Options{
		Scheme: s, Logger: testr.New(t), Metrics: server.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: new(true)},
		LeaderElection: true, LeaderElectionID: "d4f3c8a2.c5c3.io", LeaderElectionNamespace: "default",
	})
	if err != nil {
		t.Fatal(err)
	}
	err = levels[level].setUp(mgr, &controller.MemcachedReconciler{
		Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Recorder: mgr.GetEventRecorder("memcached-controller"),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return mgr
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(scheme.AddToScheme, v1beta1.AddToScheme, monitoringv1.AddToScheme)
	if err := builder.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// createsAll creates a Memcached and waits for what the operator makes of it.
func createsAll(t *testing.T, admin client.Client) {
	t.Helper()
	mc := &v1beta1.Memcached{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "sessions"}}
	replicas := int32(2)
	mc.Spec.Replicas = &replicas
	if err := admin.Create(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(mc)
	for _, obj := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}} {
		eventually(t, func() error { return admin.Get(t.Context(), key, obj) })
	}
	eventually(t, func() error {
		if err := admin.Get(t.Context(), key, mc); err != nil {
			return err
		}
		if len(mc.Status.Conditions) == 0 {
			return fmt.Errorf("no conditions in %+v", mc.Status)
		}
		return nil
	})
	if err := admin.Delete(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := admin.Get(t.Context(), key, mc); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists: %v", err)
		}
		return nil
	})
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func TestMemcached_Simulated(t *testing.T) {
	for level := range levels {
		t.Run(level, func(t *testing.T) {
			if level == "controller-runtime" {
				t.Skip("its goroutines leave the bubble")
			}
			synctest.Test(t, func(t *testing.T) {
				s := newScheme(t)
				server := sim.New(t, s)
				start(t, level, server.Config(), s)
				createsAll(t, newAdmin(t, server.Config(), s))
			})
		})
	}
}

func newAdmin(t *testing.T, cfg *rest.Config, s *runtime.Scheme) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMemcached_RealAPIServer(t *testing.T) {
	dir := os.Getenv("OPERATOR_DIR")
	cluster, err := envtest.Start(t.Context(), envtest.Options{CRDs: []string{filepath.Join(dir, "config/crd/bases"), "monitor.yaml"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	for level := range levels {
		t.Run(level, func(t *testing.T) {
			s := newScheme(t)
			start(t, level, cluster.Config(), s)
			createsAll(t, newAdmin(t, cluster.Config(), s))
		})
	}
}
