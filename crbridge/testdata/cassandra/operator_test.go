// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package bridged

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	api "github.com/k8ssandra/cass-operator/apis/cassandra/v1beta1"
	controlapi "github.com/k8ssandra/cass-operator/apis/control/v1alpha1"
	controllers "github.com/k8ssandra/cass-operator/internal/controllers/cassandra"
	control "github.com/k8ssandra/cass-operator/internal/controllers/control"
	"github.com/k8ssandra/cass-operator/pkg/dynamicwatch"
	"github.com/k8ssandra/cass-operator/pkg/images"
	"github.com/k8ssandra/cass-operator/pkg/oplabels"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/crbridge/testdata/harness"
)

func operator(t *testing.T) *harness.Operator {
	t.Helper()
	if err := images.ParseImageConfig(source("tests/testdata/image_config_parsing.yaml")); err != nil {
		t.Fatal(err)
	}
	return &harness.Operator{
		Lease:  "b569adb7.cassandra.datastax.com",
		Scheme: []func(*runtime.Scheme) error{api.AddToScheme, controlapi.AddToScheme},
		CRDs:   []string{"config/crd/bases"},
		Unchanged: func(mgr ctrl.Manager) error {
			return errors.Join(datacenters(mgr).SetupWithManager(mgr), others(mgr), indexes(mgr))
		},
		Bridged: func(mgr ctrl.Manager) error { return errors.Join(bridged(mgr), others(mgr), indexes(mgr)) },
		Check:   createsRack,
	}
}

func source(path string) string { return filepath.Join(os.Getenv("OPERATOR_DIR"), path) }

func TestCassandra_Simulated(t *testing.T)     { operator(t).Simulated(t) }
func TestCassandra_RealAPIServer(t *testing.T) { operator(t).Real(t) }

func datacenters(mgr ctrl.Manager) *controllers.CassandraDatacenterReconciler {
	return &controllers.CassandraDatacenterReconciler{
		Client: mgr.GetClient(), Log: logr.Discard(), Scheme: mgr.GetScheme(), Recorder: mgr.GetEventRecorderFor("cass-operator"),
	}
}

// others adds the operator's two smaller controllers as they are.
func others(mgr ctrl.Manager) error {
	return errors.Join(
		(&control.CassandraTaskReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}).SetupWithManager(mgr),
		(&control.ScheduledTaskReconciler{Client: mgr.GetClient(), Log: logr.Discard(), Scheme: mgr.GetScheme(), Clock: &control.RealClock{}}).SetupWithManager(mgr),
	)
}

// indexes are from the operator's main.
func indexes(mgr ctrl.Manager) error {
	claims := func(obj client.Object) (names []string) {
		for _, volume := range obj.(*corev1.Pod).Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				names = append(names, volume.PersistentVolumeClaim.ClaimName)
			}
		}
		return names
	}
	involved := func(obj client.Object) []string {
		if of := obj.(*corev1.Event).InvolvedObject; of.Kind == "Pod" {
			return []string{of.Name}
		}
		return nil
	}
	return errors.Join(
		mgr.GetCache().IndexField(context.Background(), &corev1.Pod{}, "spec.volumes.persistentVolumeClaim.claimName", claims),
		mgr.GetCache().IndexField(context.Background(), &corev1.Event{}, "involvedObject.name", involved),
	)
}

// bridged is SetupWithManager of the datacenters' reconciler with the import of crbridge.
func bridged(mgr ctrl.Manager) error {
	r := datacenters(mgr)
	r.SecretWatches = dynamicwatch.NewDynamicSecretWatches(r.Client)
	managed := predicate.NewPredicateFuncs(func(obj client.Object) bool { return oplabels.HasManagedByCassandraOperatorLabel(obj.GetLabels()) })
	configures := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetAnnotations()[api.DatacenterAnnotation] != "" })
	configured := func(_ context.Context, obj client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetAnnotations()[api.DatacenterAnnotation]}}}
	}
	watching := func(_ context.Context, obj client.Object) (all []reconcile.Request) {
		for _, watcher := range r.SecretWatches.FindWatchers(obj) {
			all = append(all, reconcile.Request{NamespacedName: watcher})
		}
		return all
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("cassandradatacenter_controller").
		For(&api.CassandraDatacenter{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Owns(&appsv1.StatefulSet{}, builder.WithPredicates(managed)).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(managed)).
		Owns(&corev1.Service{}, builder.WithPredicates(managed)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(configured), builder.WithPredicates(configures)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(watching)).
		Complete(r)
}

// createsRack creates a datacenter and waits for its StatefulSet and Services.
func createsRack(t *testing.T, admin client.Client) {
	t.Helper()
	manifest, err := os.ReadFile(source("tests/testdata/default-single-rack-single-node-dc.yaml"))
	var dc unstructured.Unstructured
	if err == nil {
		err = yaml.Unmarshal(manifest, &dc.Object)
	}
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cassandra-"}} // nothing deletes what the operator makes
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	dc.SetNamespace(namespace.Name)
	unstructured.RemoveNestedField(dc.Object, "spec", "config") // config/crd/bases has a wrong type for it
	if err := admin.Create(t.Context(), &dc); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, func() error {
		var sets appsv1.StatefulSetList
		var services corev1.ServiceList
		in := client.InNamespace(dc.GetNamespace())
		err := errors.Join(admin.List(t.Context(), &sets, in), admin.List(t.Context(), &services, in))
		if err == nil && (len(sets.Items) != 1 || len(services.Items) < 4) {
			err = fmt.Errorf("there are %d StatefulSets and %d Services", len(sets.Items), len(services.Items))
		}
		return err
	})
	key := client.ObjectKeyFromObject(&dc)
	harness.Eventually(t, func() error {
		if err := admin.Get(t.Context(), key, &dc); err != nil {
			return err
		}
		progress, _, err := unstructured.NestedString(dc.Object, "status", "cassandraOperatorProgress")
		if err == nil && (len(dc.GetFinalizers()) == 0 || progress == "") {
			err = fmt.Errorf("finalizers %v, progress %q", dc.GetFinalizers(), progress)
		}
		return err
	})
}
