// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"context"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	theirs "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

type websiteReconciler struct{ reconcile.Reconciler }

func (r *websiteReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&appsv1.Deployment{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}).
		Complete(r)
}

// At level a, main has the import of crbridge. At level b, the file of the controller has it, too.
func ExampleNewManager() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{LeaderElection: true, LeaderElectionID: "website"})
	if err == nil {
		err = (&websiteReconciler{}).SetupWithManager(mgr)
	}
	if err == nil {
		err = mgr.Start(ctrl.SetupSignalHandler())
	}
	if err != nil {
		ctrl.Log.Error(err, "the manager failed")
		os.Exit(1)
	}
}

// A controller of Setpoint beside the ones of controller-runtime, in their manager.
func ExampleNewHost() {
	mgr, err := theirs.NewManager(theirs.GetConfigOrDie(), theirs.Options{})
	if err != nil {
		panic(err)
	}
	host, err := ctrl.NewHost(mgr, client.Options{FieldOwner: "website"})
	if err != nil {
		panic(err)
	}
	deployments, err := ctrl.Adopt[*appsv1.Deployment](host)
	if err != nil {
		panic(err)
	}
	r := controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		_, err := deployments.Get(ctx, key)
		return controller.Result{}, client.IgnoreNotFound(err)
	})
	c := controller.New("website", r, controller.Options{})
	c.Watch(source.Kind(deployments, handler.Self()))
	if err := host.Add(c); err != nil {
		panic(err)
	}
}
