// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	theirs "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// TestHost runs a controller of Setpoint in a manager of controller-runtime. Although watches are
// late, it creates one Secret for each ConfigMap, and it shares the informers of the manager.
func TestHost(t *testing.T) { synctest.Test(t, hosts) }

func hosts(t *testing.T) {
	server := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases)
	server.Lag(100 * time.Millisecond)
	o := elected()
	o.Logger, o.Metrics, o.LeaderElectionReleaseOnCancel = logr.Discard(), metricsserver.Options{BindAddress: "0"}, true
	o.Controller.SkipNameValidation = new(true)
	mgr, err := theirs.NewManager(server.Config(), o)
	testkit.NoError(t, err)
	host, err := ctrl.NewHost(mgr, client.Options{FieldOwner: "host"})
	testkit.NoError(t, err)
	owners, err := ctrl.Adopt[*corev1.ConfigMap](host)
	testkit.NoError(t, err)
	owned, err := ctrl.Adopt[*corev1.Secret](host)
	testkit.NoError(t, err)
	secretsOf := client.For[*corev1.Secret](host.Client())
	c := controller.New("host", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		owner, err := owners.Get(ctx, key)
		if err != nil {
			return controller.Result{}, client.IgnoreNotFound(err)
		}
		for _, err := range owned.Owned(ctx, owner.UID, cache.ListOptions{Namespace: key.Namespace}) {
			return controller.Result{}, err
		}
		child := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "of-", Namespace: key.Namespace}}
		child.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, owners.GroupVersionKind())}
		_, err = secretsOf.Create(ctx, child)
		return controller.Result{}, err
	}), controller.Options{})
	c.Watch(source.Kind(owners, handler.Self()))
	c.Watch(source.Kind(owned, handler.Owner(owners)))
	testkit.NoError(t, host.Add(c))
	// A controller of their own shares the informers.
	err = theirs.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
		return ctrl.Result{}, nil
	}))
	testkit.NoError(t, err)
	stop := start(t, mgr)
	admin := newClient(t, server.Config())
	for n := range 5 {
		cm := configMap(fmt.Sprint("owner-", n))
		testkit.NoError(t, admin.Create(t.Context(), cm))
		time.Sleep(30 * time.Millisecond)
		cm.Data = map[string]string{"a": "b"}
		testkit.NoError(t, admin.Update(t.Context(), cm))
	}
	time.Sleep(time.Minute)
	ended(t, stop)
	testkit.Equal(t, len(secrets(t, server)), 5, "created Secrets for 5 owners")
	watches := 0
	for _, r := range server.Requests() {
		if r.Verb == "watch" && r.Resource.Resource == "configmaps" {
			watches++
		}
	}
	testkit.Equal(t, watches, 1, "ConfigMaps were watched")
}

// TestNewHost_OfABridge names the remedy.
func TestNewHost_OfABridge(t *testing.T) {
	mgr := managerOn(t, sim.NewServer(sim.ConfigMaps).Config(), ctrl.Options{}, ctrl.Settings{})
	testkit.ErrorContains(t, testkit.Err(ctrl.NewHost(mgr, client.Options{})), "method Setpoint returns")
}
