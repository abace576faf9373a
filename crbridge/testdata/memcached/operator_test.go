// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package bridged

import (
	"context"
	"fmt"
	"testing"

	"github.com/c5c3/memcached-operator/api/v1beta1"
	"github.com/c5c3/memcached-operator/internal/controller"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/crbridge/testdata/harness"
)

func operator() *harness.Operator {
	return &harness.Operator{
		Lease:     "d4f3c8a2.c5c3.io",
		Scheme:    []func(*runtime.Scheme) error{v1beta1.AddToScheme, monitoringv1.AddToScheme},
		CRDs:      []string{"config/crd/bases"},
		More:      []string{"monitor.yaml"},
		Unchanged: func(mgr ctrl.Manager) error { return reconciler(mgr).SetupWithManager(mgr) },
		Bridged:   bridged,
		Check:     createsAll,
	}
}

func TestMemcached_Simulated(t *testing.T)     { operator().Simulated(t) }
func TestMemcached_RealAPIServer(t *testing.T) { operator().Real(t) }

func reconciler(mgr ctrl.Manager) *controller.MemcachedReconciler {
	return &controller.MemcachedReconciler{
		Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Recorder: mgr.GetEventRecorder("memcached-controller"),
	}
}

// bridged is the operator's SetupWithManager with the import of crbridge.
func bridged(mgr ctrl.Manager) error {
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
		Complete(reconciler(mgr))
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
		harness.Eventually(t, func() error { return admin.Get(t.Context(), key, obj) })
	}
	harness.Eventually(t, func() error {
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
	harness.Eventually(t, func() error {
		if err := admin.Get(t.Context(), key, mc); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists: %v", err)
		}
		return nil
	})
}
