// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/finalizer"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/sweep"
)

// mode is the label of an owner that decides about its children.
const mode = "mode"

// family is an operator whose owners are ServiceAccounts with the label mode.
type family struct {
	owners *cache.Handle[*corev1.ServiceAccount]
	set    *children.Set[*corev1.ServiceAccount]
	client *client.Handle[*corev1.ServiceAccount]
}

// members returns the children of a mode. Mode 2 has no ConfigMap spare. Mode 3 has no
// ConfigMap extra, and the Deployment has another selector.
func (f *family) members(mode string) []client.ApplyConfiguration {
	app := map[string]string{"1": "a", "2": "a", "3": "b"}[mode]
	base := configMap("base", "always")
	deploy := children.With(rollout("deploy", app), children.Recreate(), children.After(base))
	all := []client.ApplyConfiguration{
		// In the reverse of their order.
		children.With(configMap("route", app), children.After(deploy)),
		children.With(service("web"), children.After(base)),
		deploy, base,
	}
	if mode == "1" {
		all = append(all, configMap("spare", "1"))
	}
	if mode != "3" {
		all = append(all, configMap("extra", "1"))
	}
	return all
}

func (f *family) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	owner, err := f.owners.Get(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	all := f.members(owner.Labels[mode])
	if owner.DeletionTimestamp == nil {
		if owner, err = f.client.EnsureFinalizer(ctx, owner, finish); err == nil {
			_, err = f.set.Reconcile(ctx, owner, all...)
		}
		return controller.Result{}, err
	}
	if !finalizer.Has(owner, finish) {
		return controller.Result{}, nil
	}
	if _, err = f.set.Delete(ctx, owner, all...); err == nil {
		_, err = f.client.RemoveFinalizer(ctx, owner, finish)
	} else if finalizer.IsWaiting(err) {
		err = nil // the events of the children lead to the next Reconcile
	}
	return controller.Result{}, err
}

func newFamily(p sweep.Process) (sweep.Operator, error) {
	mgr := manager.New(p.Config, manager.Options{
		Name: "family", Scheme: scheme.Scheme, Logger: p.Logger,
		LeaderElection: &leaderelection.Options{Namespace: metav1.NamespaceDefault, Lease: "family"},
	})
	f := &family{owners: cache.For[*corev1.ServiceAccount](mgr.Cache()), client: client.For[*corev1.ServiceAccount](mgr.Client())}
	configMaps, svcs := cache.For[*corev1.ConfigMap](mgr.Cache()), cache.For[*corev1.Service](mgr.Cache())
	deployments := cache.For[*appsv1.Deployment](mgr.Cache())
	var err error
	f.set, err = children.New(f.owners, mgr.Client(), children.Of(configMaps), children.Of(svcs), children.Of(deployments))
	c := controller.New("family", f, controller.Options{})
	c.Watch(source.Kind(f.owners, handler.Self()))
	c.Watch(source.Kind(configMaps, handler.Owner(f.owners)))
	c.Watch(source.Kind(svcs, handler.Owner(f.owners)))
	c.Watch(source.Kind(deployments, handler.Owner(f.owners)))
	mgr.Add(c)
	return mgr, err
}

// newRollouts stands in for the Deployment controller: each Deployment is rolled out.
func newRollouts(p sweep.Process) (sweep.Program, error) {
	mgr := manager.New(p.Config, manager.Options{Name: "rollouts", Scheme: scheme.Scheme, Logger: p.Logger})
	deployments, h := cache.For[*appsv1.Deployment](mgr.Cache()), client.For[*appsv1.Deployment](mgr.Client())
	c := controller.New("rollouts", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		d, err := deployments.Get(ctx, key)
		if err == nil && d.DeletionTimestamp == nil {
			_, err = h.ApplyStatus(ctx, appsac.Deployment(d.Name, d.Namespace).WithUID(d.UID).WithStatus(appsac.DeploymentStatus().
				WithObservedGeneration(d.Generation).WithReplicas(1).WithUpdatedReplicas(1).WithReadyReplicas(1).WithAvailableReplicas(1).
				WithConditions(
					appsac.DeploymentCondition().WithType(appsv1.DeploymentAvailable).WithStatus(corev1.ConditionTrue),
					appsac.DeploymentCondition().WithType(appsv1.DeploymentProgressing).WithStatus(corev1.ConditionTrue).WithReason("NewReplicaSetAvailable"))))
		}
		if apierrors.IsConflict(err) {
			err = nil // it was deleted and created
		}
		return controller.Result{}, client.IgnoreNotFound(err)
	}), controller.Options{})
	c.Watch(source.Kind(deployments, handler.Self(), handler.GenerationChanged))
	mgr.Add(c)
	return mgr, nil
}

// familySteps create an owner, change what it wants, and delete it. Meanwhile, others take a child.
func familySteps() []sweep.Step {
	key := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "owner"}
	named := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: key.Namespace, Name: name}
	}
	label := func(ctx context.Context, c *client.Client, labels string) error {
		_, err := client.For[*corev1.ServiceAccount](c).Patch(ctx, key, types.MergePatchType, []byte(`{"metadata":{"labels":`+labels+`}}`))
		return err
	}
	return []sweep.Step{
		{Name: "create", Do: func(ctx context.Context, c *client.Client) error {
			sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{mode: "1"}}}
			sa, err := client.For[*corev1.ServiceAccount](c).Create(ctx, sa)
			if err != nil {
				return err
			}
			// It belongs to the owner, but package children has not made it.
			_, err = client.For[*corev1.ConfigMap](c).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: "by-hand",
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(sa, corev1.SchemeGroupVersion.WithKind("ServiceAccount"))},
			}})
			return err
		}},
		{Name: "take the spare ConfigMap, and mode 2", Do: func(ctx context.Context, c *client.Client) error {
			_, err := client.For[*corev1.ConfigMap](c).Patch(ctx, named("spare"), types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null},"data":{"key":"taken"}}`))
			switch {
			case apierrors.IsNotFound(err): // not made yet
				return label(ctx, c, `{"mode":"2"}`)
			case err != nil:
				return err
			}
			return label(ctx, c, `{"mode":"2","taken":"yes"}`)
		}},
		{Name: "mode 3", Do: func(ctx context.Context, c *client.Client) error { return label(ctx, c, `{"mode":"3"}`) }},
		{Name: "delete", Do: func(ctx context.Context, c *client.Client) error {
			return client.For[*corev1.ServiceAccount](c).Delete(ctx, key)
		}},
	}
}

// familyInvariants are about the order of the children. complete is set once an owner
// has the children of mode 3, and no others.
func familyInvariants(complete *atomic.Bool) []sweep.Invariant {
	names := func(s *sweep.State) map[string]string {
		all := map[string]string{}
		for _, cm := range sweep.List[*corev1.ConfigMap](s) {
			all[cm.Name] = cm.Data["key"]
		}
		for _, d := range sweep.List[*appsv1.Deployment](s) {
			all[d.Name] = d.Spec.Selector.MatchLabels["app"]
		}
		for _, svc := range sweep.List[*corev1.Service](s) {
			all[svc.Name] = "exists"
		}
		return all
	}
	return []sweep.Invariant{
		{Name: "what is not a child stays", Holds: func(s *sweep.State) error {
			all := names(s)
			for _, owner := range sweep.List[*corev1.ServiceAccount](s) {
				if all["route"] == "b" && all["extra"] == "" && owner.DeletionTimestamp == nil {
					complete.Store(true)
				}
				if _, there := all["by-hand"]; owner.Labels[mode] != "1" && !there {
					return errors.New("by-hand is gone, which package children has not made")
				}
				if owner.Labels["taken"] != "" && all["spare"] != "taken" {
					return fmt.Errorf("the value of spare is %q, and others have taken it", all["spare"])
				}
			}
			return nil
		}},
		{Name: "nothing without what it is after", Holds: func(s *sweep.State) error {
			all := names(s)
			for _, after := range []string{"web", "deploy", "route"} {
				if all[after] != "" && all["base"] == "" {
					return fmt.Errorf("%s exists without base", after)
				}
			}
			return nil
		}},
		{Name: "no route to a Deployment that is not rolled out", Holds: func(s *sweep.State) error {
			all := names(s)
			for _, d := range sweep.List[*appsv1.Deployment](s) {
				if app := d.Spec.Selector.MatchLabels["app"]; all["route"] == app && d.Status.ObservedGeneration != d.Generation {
					return fmt.Errorf("the route goes to %s, whose status is %+v", app, d.Status)
				}
			}
			if all["route"] == "b" && all["deploy"] == "a" {
				return errors.New("the route goes to b, and the Deployment is a's")
			}
			return nil
		}},
	}
}

// TestSweep: an operator with an order, Recreate, pruning and Delete ends as without faults, at
// each fault of each write.
func TestSweep(t *testing.T) {
	var complete atomic.Bool
	t.Cleanup(func() {
		testkit.Equal(t, complete.Load(), true, "no run had the children of mode 3, and no others")
	})
	sweep.Run(t, sweep.Scenario{
		Scheme:   scheme.Scheme,
		Operator: newFamily,
		Beside:   []func(sweep.Process) (sweep.Program, error){newRollouts},
		Steps:    familySteps(), Invariants: familyInvariants(&complete),
	})
}
