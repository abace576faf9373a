// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package bridged

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	sandboxv1alpha1 "sigs.k8s.io/agent-sandbox/api/v1alpha1"
	"sigs.k8s.io/agent-sandbox/controllers"
	extensionsv1alpha1 "sigs.k8s.io/agent-sandbox/extensions/api/v1alpha1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/controllers"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/crbridge/testdata/harness"
)

func operator() *harness.Operator {
	return &harness.Operator{
		Lease:     "a3317529.x-k8s.io",
		Scheme:    []func(*runtime.Scheme) error{sandboxv1alpha1.AddToScheme, extensionsv1alpha1.AddToScheme},
		CRDs:      []string{"k8s/crds"},
		Unchanged: unchanged,
		Bridged:   bridged,
		Check:     claims,
	}
}

func TestSandbox_Simulated(t *testing.T)     { operator().Simulated(t) }
func TestSandbox_RealAPIServer(t *testing.T) { operator().Real(t) }

func unchanged(mgr ctrl.Manager) error {
	return errors.Join(
		(&controllers.SandboxReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}).SetupWithManager(mgr),
		(&extensions.SandboxClaimReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}).SetupWithManager(mgr),
		(&extensions.SandboxWarmPoolReconciler{Client: mgr.GetClient()}).SetupWithManager(mgr),
	)
}

// bridged has the builders of the operator's SetupWithManager, with the import of crbridge.
func bridged(mgr ctrl.Manager) error {
	labeled, err := predicate.LabelSelectorPredicate(metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "agents.x-k8s.io/sandbox-name-hash", Operator: metav1.LabelSelectorOpExists}},
	})
	if err != nil {
		return err
	}
	return errors.Join(
		ctrl.NewControllerManagedBy(mgr).
			For(&sandboxv1alpha1.Sandbox{}).
			Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(labeled)).
			Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(labeled)).
			Complete(&controllers.SandboxReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}),
		ctrl.NewControllerManagedBy(mgr).
			For(&extensionsv1alpha1.SandboxClaim{}).
			Owns(&sandboxv1alpha1.Sandbox{}).
			Complete(&extensions.SandboxClaimReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}),
		ctrl.NewControllerManagedBy(mgr).
			For(&extensionsv1alpha1.SandboxWarmPool{}).
			Owns(&corev1.Pod{}).
			Complete(&extensions.SandboxWarmPoolReconciler{Client: mgr.GetClient()}),
	)
}

// claims claims a sandbox of a template, and waits for its Pod and Service.
func claims(t *testing.T, admin client.Client) {
	t.Helper()
	template := &extensionsv1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "python"}}
	template.Spec.PodTemplate.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}}
	claim := &extensionsv1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
	claim.Spec.TemplateRef.Name = "python"
	for _, obj := range []client.Object{template, claim} {
		if err := admin.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	key := client.ObjectKeyFromObject(claim)
	for _, obj := range []client.Object{&sandboxv1alpha1.Sandbox{}, &corev1.Pod{}, &corev1.Service{}} {
		harness.Eventually(t, func() error { return admin.Get(t.Context(), key, obj) })
	}
	harness.Eventually(t, func() error {
		err := admin.Get(t.Context(), key, claim)
		if err == nil && len(claim.Status.Conditions) == 0 {
			return fmt.Errorf("no conditions in %+v", claim.Status)
		}
		return err
	})
	var sandbox sandboxv1alpha1.Sandbox
	for _, obj := range []client.Object{claim, template} {
		if err := admin.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	// A real API server alone has no garbage collector.
	sandbox.Namespace, sandbox.Name = key.Namespace, key.Name
	for _, obj := range []client.Object{&sandbox, &corev1.Pod{ObjectMeta: sandbox.ObjectMeta}, &corev1.Service{ObjectMeta: sandbox.ObjectMeta}} {
		if err := admin.Delete(t.Context(), obj); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, func() error {
			if err := admin.Get(t.Context(), key, obj); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T exists: %v", obj, err)
			}
			return nil
		})
	}
}
